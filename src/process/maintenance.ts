/**
 * Maintains the partitions of the audit log and of usage, once at the start and then every hour, and
 * creates missing ones as soon as a row needs one.
 */
import type { Stores } from '../wiring/stores.ts'
import type { Lines } from './log.ts'

const everyMs = 3_600_000
/** Every refusal fails while a partition is missing, and each asks for it. */
const createEveryMs = 10_000

/** Resolves after the first round. Never rejects: a failure is logged. */
export async function startMaintenance(stores: Pick<Stores, 'maintain' | 'createPartitions'>, log: Lines) {
  const onFault = (error: unknown) =>
    log.error({ err: error }, 'partition maintenance failed; will be tried again')
  const round = () =>
    stores.maintain().then((dropped) => {
      if (dropped.length > 0) log.info({ partitions: dropped }, 'partitions past their retention dropped')
    }, onFault)
  let createdAtMs = -createEveryMs
  const timer = setInterval(round, everyMs)
  timer.unref()
  await round()
  return {
    /**
     * The timer stands still while the machine sleeps, and the clock of Postgres may jump. Drops
     * nothing, because that clock may be wrong.
     */
    createPartitions() {
      if (performance.now() - createdAtMs < createEveryMs) return
      createdAtMs = performance.now()
      stores.createPartitions().then(() => log.warn('missing partitions created'), onFault)
    },
    stop: () => clearInterval(timer),
  }
}
