// A clock that the test sets, for a module that asks `performance.now` and sets timers.
import type { Test } from 'tap'

export interface Clock {
  /** Runs the timers that are due by then, in their order. */
  advance(ms: number): void
  /** How many timers are set. */
  countTimers(): number
}

/** Until the end of the test. Turns of the event loop (setImmediate) go on as ever. */
export function setClock(t: Test): Clock {
  let nowMs = 1_000_000
  const timers = new Map<object, { dueMs: number; run: () => void }>()
  const set = (run: () => void, ms: number) => {
    const timer = { unref: () => timer }
    timers.set(timer, { dueMs: nowMs + ms, run })
    return timer
  }
  t.intercept(performance, 'now', { value: () => nowMs })
  t.intercept(globalThis, 'setTimeout', { value: set })
  // Connections of fetch have real timers, which fail if they outlive them.
  const clearReal = clearTimeout
  const clear = (timer: NodeJS.Timeout) => timers.delete(timer) || clearReal(timer)
  t.intercept(globalThis, 'clearTimeout', { value: clear })
  return {
    advance(ms) {
      const untilMs = nowMs + ms
      for (;;) {
        const [next] = [...timers].sort(([, a], [, b]) => a.dueMs - b.dueMs)
        if (next === undefined || next[1].dueMs > untilMs) break
        timers.delete(next[0])
        nowMs = Math.max(nowMs, next[1].dueMs)
        next[1].run()
      }
      nowMs = untilMs
    },
    countTimers: () => timers.size,
  }
}
