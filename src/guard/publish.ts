/**
 * Makes sure that every instance sees a committed change before the response is sent. With Redis
 * up, that is one call. Without it, the response waits until no instance can trust an older copy.
 * Retries continue meanwhile, and a success ends the wait.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Counter, Publish } from '../stores.ts'

const retryEveryMs = 200
/**
 * Allows for a request that was counted just before its copy became too old and is still being
 * answered.
 */
const marginMs = 250
/**
 * Retries continue for this long, even after the response: an instance that reaches Redis but not
 * Postgres trusts a copy for that time.
 */
const retryForMs = 60_000

/** `maxStaleMs`: how long an instance may trust a copy that it read just before the change. */
export function createPublish({ counter, maxStaleMs }: { counter: Counter; maxStaleMs: number }): Publish {
  return async (versions) => {
    const untilMs = performance.now() + retryForMs
    const done = new AbortController()
    const wait = sleep(maxStaleMs + marginMs, undefined, { signal: done.signal }).catch(() => {})
    const confirmed = async () => {
      while (!(await counter.raise(versions))) {
        if (counter.mode === 'memory' || performance.now() > untilMs) return wait
        await sleep(retryEveryMs, undefined, { ref: false })
      }
    }
    await Promise.race([confirmed(), wait])
    done.abort()
  }
}
