// Waits for a condition by checking it again and again. The bound only ends a wait for what never happens.
import { setTimeout as pause } from 'node:timers/promises'

const lookEveryMs = 10

/** The first result of `look` that is neither null, undefined nor false. */
export async function until<T>(
  what: string,
  look: () => T | Promise<T>,
  boundMs = 60_000,
): Promise<NonNullable<Exclude<T, false>>> {
  const deadline = performance.now() + boundMs
  for (;;) {
    const found = await look()
    if (found !== null && found !== undefined && found !== false)
      return found as NonNullable<Exclude<T, false>>
    if (performance.now() > deadline) throw new Error(`waited ${boundMs} ms until ${what}`)
    await pause(lookEveryMs)
  }
}
