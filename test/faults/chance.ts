// Random moments that can be repeated: the seed is printed, and SEED sets it.
import { randomInt } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'

export interface Chance {
  /** From the lower bound up to the upper one, not including it. */
  between(from: number, to: number): number
  /** Waits for such a time, milliseconds. */
  pause(fromMs: number, toMs: number): Promise<void>
}

export function chanceOf(t: Test): Chance {
  const seed = Number(process.env.SEED ?? 0) || randomInt(1, 2 ** 31)
  t.comment(`seed ${seed}: the same moments again with --test-env=SEED=${seed}`)
  let state = seed
  // mulberry32: 32 bits of state are plenty for choosing moments.
  const next = () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const between = (from: number, to: number) => from + next() * (to - from)
  return { between, pause: (fromMs, toMs) => pause(between(fromMs, toMs)) }
}
