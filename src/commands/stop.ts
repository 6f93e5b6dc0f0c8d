/** How `serve` stops: at a signal, at an unexpected error, or when `npm start` has ended. */
import { setTimeout as pause } from 'node:timers/promises'
import closeWithGrace from 'close-with-grace'
import type { Log } from '../process/log.ts'
import { announceStop } from './workers.ts'

/** A stop that takes longer is aborted. */
const closeTimeoutMs = 25_000
/**
 * After this, requests that are still in flight are cut off. With the longest DRAIN_SECONDS they get
 * 4 s, and 6 s are left for what must be written: usage takes up to 5 s.
 */
const cutOffMs = 19_000
const parentWatchMs = 250
const logFlushMs = 1000
/** A handler returns to the fault that raised the signal: the process would spin for ever. */
const crashes = ['SIGILL', 'SIGTRAP', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGSEGV'] as const

export interface Stop {
  /** Aborted when the stop begins. */
  signal: AbortSignal
  /** Aborted when no request may take longer. */
  cutOff: AbortSignal
  /** Whether a load balancer needs time to notice. */
  drains: boolean
}

/** At a signal or an unexpected error: calls `close`, and then ends the process. */
export function stopOnSignal(log: Log, close: () => Promise<void>): Stop {
  const stopping = new AbortController()
  const cuttingOff = new AbortController()
  const stop: Stop = { signal: stopping.signal, cutOff: cuttingOff.signal, drains: false }
  const logger = { error: (why: Error | string) => log.fatal(why) }
  closeWithGrace({ delay: closeTimeoutMs, logger, skip: [...crashes] }, async ({ err, signal }) => {
    // Ctrl-C comes from a person, not a load balancer.
    stop.drains = signal === 'SIGTERM'
    stopping.abort()
    setTimeout(() => cuttingOff.abort(), cutOffMs).unref()
    announceStop()
    if (err) log.fatal({ err }, 'unexpected error: stopping')
    else log.info({ signal }, 'stopping')
    await close()
    log.info('stopped')
    // Nobody may be reading the log any more.
    await Promise.race([new Promise((resolve) => log.flush(resolve)), pause(logFlushMs)])
  })
  return stop
}

/**
 * npm passes a signal to its shell only: without this the service would outlive `npm start`, and the
 * demo `npm run demo`. The signal may also reach the process itself, and a second one would cut the
 * stop short. So wait one interval for it before sending ours.
 */
export function stopWithParent(stopping: AbortSignal) {
  const parent = process.ppid
  let isOrphan = false
  const watch = setInterval(() => {
    if (isOrphan) process.kill(process.pid, 'SIGTERM')
    isOrphan = process.ppid !== parent
  }, parentWatchMs)
  watch.unref()
  stopping.addEventListener('abort', () => clearInterval(watch))
}
