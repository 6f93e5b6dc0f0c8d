// Waits for a condition by checking it again and again. The bound only ends a wait for what never happens.
import { setTimeout as pause } from 'node:timers/promises'

const lookEveryMs = 10
/** Not performance.now(), which a test may hold. */
const nowMs = () => Number(process.hrtime.bigint()) / 1e6

/** The first result of `look` that is neither null, undefined nor false. */
export async function until<T>(
  what: string,
  look: () => T | Promise<T>,
  boundMs = 60_000,
): Promise<NonNullable<Exclude<T, false>>> {
  const deadlineMs = nowMs() + boundMs
  for (;;) {
    const found = await look()
    if (found !== null && found !== undefined && found !== false)
      return found as NonNullable<Exclude<T, false>>
    if (nowMs() > deadlineMs) throw new Error(`waited ${boundMs} ms until ${what}`)
    await pause(lookEveryMs)
  }
}
