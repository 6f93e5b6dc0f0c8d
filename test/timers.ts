// Which timers a module leaves behind. They are real ones: test/clock.ts has those that a test moves.
import type { Test } from 'tap'

/**
 * Those that are set from now on, until they are cleared, each with its milliseconds. A timeout stays
 * here after it has run.
 */
export function watchTimers(t: Test, kind: 'Timeout' | 'Interval'): ReadonlyMap<NodeJS.Timeout, number> {
  const running = new Map<NodeJS.Timeout, number>()
  const [set, clear] =
    kind === 'Timeout' ? ([setTimeout, clearTimeout] as const) : ([setInterval, clearInterval] as const)
  t.intercept(globalThis, `set${kind}`, {
    value: (run: () => void, ms: number) => {
      const timer = set(run, ms)
      running.set(timer, ms)
      return timer
    },
  })
  t.intercept(globalThis, `clear${kind}`, {
    value: (timer: NodeJS.Timeout) => {
      running.delete(timer)
      clear(timer)
    },
  })
  return running
}
