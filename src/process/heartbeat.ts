/** Reports this instance to the others once a second. One report at a time: none pile up. */
import type { OldCopies } from '../guard/old-copies.ts'
import type { Unchanged } from '../guard/unchanged.ts'
import type { InstanceReport, InstanceStore } from '../stores.ts'

export interface HeartbeatOptions {
  instances: Pick<InstanceStore, 'report' | 'remove'>
  oldCopies: Pick<OldCopies, 'report' | 'isBehind'>
  unchanged: Pick<Unchanged, 'since' | 'learn'>
  report: () => InstanceReport
  /** Called when reports begin to fail, and with null when they succeed again. */
  onFault: (error: Error | null) => void
}

export interface Heartbeat {
  /** Whether the last report failed. */
  readonly failing: boolean
  /** Resolves after the first report. Never rejects. */
  start(): Promise<void>
  /** Removes the row, so that nobody waits for this instance. Never rejects. */
  close(): Promise<void>
}

const everyMs = 1000

export function createHeartbeat(options: HeartbeatOptions): Heartbeat {
  const { instances, oldCopies, unchanged, report, onFault } = options
  let timer: NodeJS.Timeout | undefined
  let reporting: Promise<void> = Promise.resolve()
  let failing = false
  let closed = false

  async function beat() {
    const startedMs = performance.now()
    const reported = oldCopies.report(async (fence) => {
      const askedAtMs = performance.now()
      const { fence: latest, changes } = await instances.report(report(), { fence, since: unchanged.since() })
      unchanged.learn(changes, askedAtMs)
      return latest
    })
    const error = await reported.then(
      () => null,
      (error: Error) => error,
    )
    if ((error !== null) !== failing) onFault(error)
    failing = error !== null
    if (closed) return
    // Another instance is waiting for this fence.
    const waitMs = oldCopies.isBehind() ? 0 : everyMs - (performance.now() - startedMs)
    timer = setTimeout(
      () => {
        reporting = beat()
      },
      Math.max(waitMs, 0),
    )
    timer.unref()
  }

  return {
    get failing() {
      return failing
    },
    start() {
      reporting = beat()
      return reporting
    },
    async close() {
      closed = true
      clearTimeout(timer)
      await reporting
      await instances.remove(report().id).catch(() => {})
    },
  }
}
