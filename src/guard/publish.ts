/**
 * Makes a committed change hold on every instance before it is answered. With Redis there that is one call. Without, the
 * answer waits until no instance can trust an older copy; retries go on meanwhile, and a success ends the wait.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Counter, Publish } from '../stores.ts'

const retryEveryMs = 200
/** For a request that was counted just before its copy grew too old, and is still being answered. */
const marginMs = 250
/** An instance that reaches Redis but not Postgres trusts a copy for this long: for it the retries go on after the answer. */
const goOnMs = 60_000

/** `maxStaleMs`: how long an instance may trust a copy that it read just before the change. */
export function createPublish({ counter, maxStaleMs }: { counter: Counter; maxStaleMs: number }): Publish {
  return async (versions) => {
    const untilMs = performance.now() + goOnMs
    const waited = new AbortController()
    const wait = sleep(maxStaleMs + marginMs, undefined, { signal: waited.signal }).catch(() => {})
    const confirmed = async () => {
      while (!(await counter.raise(versions))) {
        if (counter.mode === 'memory' || performance.now() > untilMs) return wait
        await sleep(retryEveryMs, undefined, { ref: false })
      }
    }
    await Promise.race([confirmed(), wait])
    waited.abort()
  }
}
