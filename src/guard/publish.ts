/**
 * Makes a committed change hold everywhere before it is answered. With Redis there it is one call. Without, the answer waits
 * until no instance can believe an older copy any more; tries go on meanwhile, and end the wait early.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Counter } from '../stores.ts'

export type Publish = (versions: { keyId: string; version: number }[]) => Promise<void>

const retryEveryMs = 200
/** For a request that was counted just before its copy grew too old, and is still being answered. */
const marginMs = 250
/** An instance that reaches Redis but not Postgres believes a copy for this long: the tries go on for it, behind the answer. */
const goOnMs = 60_000

/** `maxStaleMs`: how long an instance may believe a copy that it read just before the change. */
export function createPublish({ counter, maxStaleMs }: { counter: Counter; maxStaleMs: number }): Publish {
  return async (versions) => {
    const untilMs = performance.now() + goOnMs
    const keepRaising = async () => {
      while (!(await counter.raise(versions)) && performance.now() < untilMs) {
        await sleep(retryEveryMs, undefined, { ref: false })
      }
    }
    const waited = new AbortController()
    const wait = sleep(maxStaleMs + marginMs, undefined, { signal: waited.signal }).catch(() => {})
    await Promise.race([keepRaising(), wait])
    waited.abort()
  }
}
