/** Reports this instance to the others once a second. One report at a time: none pile up. */
import type { OldCopies } from '../guard/old-copies.ts'
import type { InstanceReport, InstanceStore } from '../stores.ts'

export interface HeartbeatOptions {
  instances: Pick<InstanceStore, 'report' | 'remove'>
  oldCopies: Pick<OldCopies, 'report' | 'isBehind'>
  report: () => InstanceReport
  /** Called when reports begin to fail, and with null when they succeed again. */
  onFault: (error: Error | null) => void
}

export interface Heartbeat {
  /** Resolves after the first report. Never rejects. */
  start(): Promise<void>
  /** Removes the row, so that nobody waits for this instance. Never rejects. */
  close(): Promise<void>
}

const everyMs = 1000

export function createHeartbeat({ instances, oldCopies, report, onFault }: HeartbeatOptions): Heartbeat {
  let timer: NodeJS.Timeout | undefined
  let reporting: Promise<void> = Promise.resolve()
  let failing = false
  let closed = false

  async function beat() {
    const startedMs = performance.now()
    const reported = oldCopies.report((fence) => instances.report(report(), fence))
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
