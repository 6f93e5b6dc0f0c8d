/** Records refusals, many in one commit, within the budget of each client address. */
import { unavailable } from '../../plugins/api-error.ts'
import type { AuditLog, RefusalRecord } from '../stores.ts'
import { createBatcher } from './batcher.ts'
import { createRefusalBudget, RefusalBudgetSpent } from './refusal-budget.ts'

interface RefusalsOptions {
  audit: Pick<AuditLog, 'recordRefusals'>
  /** REFUSALS_PER_ADDRESS_RPM. */
  perAddressRpm: number
  /** From the refusal to its commit. */
  timeoutMs: number
  onBatch: (size: number) => void
  /** How long refusals waited to be sent. */
  onWait?: (seconds: number) => void
  onShed: () => void
  onCommit: (seconds: number) => void
  onOverBudget: () => void
}

export interface Refusals {
  /**
   * Resolves once the record is committed. Rejects with a 503 if that cannot be, or if the address
   * has no budget left.
   */
  record(refusal: RefusalRecord): Promise<void>
  drained(): Promise<void>
}

const batchMax = 1000
const queueMax = 10_000

export function createRefusals(options: RefusalsOptions): Refusals {
  const { audit, perAddressRpm, timeoutMs, onBatch, onWait, onShed, onCommit, onOverBudget } = options
  const budget = createRefusalBudget({ perMinute: perAddressRpm })
  const batcher = createBatcher<RefusalRecord, undefined>({
    name: 'Postgres (audit)',
    batchMax,
    inFlightMax: 2,
    queueMax,
    timeoutMs,
    onBatch,
    onWait,
    onShed,
    async run(batch) {
      const startMs = performance.now()
      try {
        await audit.recordRefusals(batch)
      } finally {
        onCommit((performance.now() - startMs) / 1000)
      }
      return batch.map(() => undefined)
    },
  })
  return {
    async record(refusal) {
      const retryAfterS = budget.take(refusal.ip)
      if (retryAfterS > 0) {
        onOverBudget()
        const cause = new RefusalBudgetSpent(`too many refusals from ${refusal.ip ?? 'an unknown address'}`)
        throw unavailable(cause, retryAfterS)
      }
      await batcher.add(refusal)
    },
    drained: () => batcher.drained(),
  }
}
