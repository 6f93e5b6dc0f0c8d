/**
 * Makes sure that every instance sees a committed change before the response is sent. With Redis
 * up, that is one call. Without it, the response waits until no instance can trust an older copy:
 * KEY_CACHE_SECONDS have passed by every clock, and every instance has reported a fence
 * (old-copies.ts). Retries continue meanwhile, and a success ends the wait.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { ApiError } from '../../plugins/api-error.ts'
import { elsewhereMs } from '../rules/clock-rates.ts'
import type { Counter, Fences, Publish } from '../stores.ts'

const retryEveryMs = 200
/**
 * Allows for a request that was counted just before its copy became too old and is still being
 * answered.
 */
const marginMs = 250
/** Longer than a change takes on an embedded database, which always waits. */
const slowMs = 2000
/** Retries continue for this long, even after the response. */
const retryForMs = 60_000

interface PublishOptions {
  counter: Pick<Counter, 'mode' | 'raise'>
  /** How long an instance may trust a copy that it read just before the change. */
  maxStaleMs: number
  /** Null if no other instance can have copies. */
  fences: Fences | null
  /** How much longer to wait for the fence than for `maxStaleMs`. */
  fenceTimeoutMs: number
  /** A change has waited for `slowMs`. */
  onSlow?: () => void
  /** How many seconds after its commit every instance saw a change. */
  onPublished?: ((seconds: number) => void) | undefined
}

export function createPublish(options: PublishOptions): Publish {
  const { counter, fences, fenceTimeoutMs, onSlow = () => {}, onPublished } = options
  const agedMs = elsewhereMs(options.maxStaleMs) + marginMs

  /** Whether every instance that may use old copies has reported a fence raised now. */
  async function everyoneReported({ raise, passed }: Fences, isOver: () => boolean): Promise<boolean> {
    let fence: number | undefined
    while (!isOver()) {
      try {
        fence ??= await raise()
        if (await passed(fence)) return true
      } catch {
        // Postgres is down or slow: ask it again.
      }
      await pause(retryEveryMs)
    }
    return false
  }

  return async (versions) => {
    const committedAtMs = performance.now()
    const passedMs = () => performance.now() - committedAtMs
    const report = () => onPublished?.(passedMs() / 1000)
    if (await counter.raise(versions)) return report()

    const done = new AbortController()
    const slow = setTimeout(onSlow, slowMs)
    const timeoutMs = agedMs + fenceTimeoutMs
    const isOver = () => done.signal.aborted || passedMs() >= timeoutMs
    const aged = pause(agedMs - passedMs(), undefined, { signal: done.signal }).catch(() => {})
    const reported = fences === null || everyoneReported(fences, isOver)
    const waited = Promise.all([reported, aged]).then(([isReported]) => isReported)
    const confirmed = async () => {
      while (counter.mode() !== 'memory' && passedMs() < retryForMs) {
        await pause(retryEveryMs, undefined, { ref: false })
        if (await counter.raise(versions)) return true
      }
      return waited
    }
    const isConfirmed = await Promise.race([confirmed(), waited])
    done.abort()
    clearTimeout(slow)
    if (!isConfirmed) throw unconfirmed()
    report()
  }
}

const unconfirmed = () =>
  new ApiError('service_unavailable', {
    message: 'The change is stored, but not yet confirmed everywhere.',
    suggestion:
      'Repeat it until it no longer fails with this message. Until then, a cached copy of the old state may still be used.',
    headers: { 'retry-after': '1' },
  })
