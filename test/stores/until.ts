// Waiting for a state without sleeping past it.
import { setTimeout as pause } from 'node:timers/promises'

/** Milliseconds until it held; throws when it does not within the bound. */
export async function until(holds: () => boolean | Promise<boolean>, withinMs = 5000): Promise<number> {
  const begunMs = performance.now()
  while (!(await holds())) {
    if (performance.now() - begunMs > withinMs) throw new Error(`did not hold within ${withinMs} ms`)
    await pause(5)
  }
  return performance.now() - begunMs
}
