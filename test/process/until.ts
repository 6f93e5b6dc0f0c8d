// Waiting for what another process brings about: asked again and again, never longer than a bound.
import { setTimeout as pause } from 'node:timers/promises'

const lookEveryMs = 10

/** What `look` gave, once it is neither null, undefined nor false. */
export async function until<T>(
  what: string,
  look: () => T | Promise<T>,
  boundMs = 10_000,
): Promise<NonNullable<Exclude<T, false>>> {
  const deadline = performance.now() + boundMs
  for (;;) {
    const found = await look()
    if (found !== null && found !== undefined && found !== false)
      return found as NonNullable<Exclude<T, false>>
    if (performance.now() > deadline) throw new Error(`waited ${boundMs} ms in vain until ${what}`)
    await pause(lookEveryMs)
  }
}
