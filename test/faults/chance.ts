// Random moments that can be repeated: the seed is printed, and SEED sets it.
import { randomInt } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { chanceOf as seeded } from '../simulation/chance.ts'

export interface Chance {
  /** From the lower bound up to the upper one, not including it. */
  between(from: number, to: number): number
  /** Waits for such a time, milliseconds. */
  pause(fromMs: number, toMs: number): Promise<void>
}

export function chanceOf(t: Test): Chance {
  const seed = Number(process.env.SEED ?? 0) || randomInt(1, 2 ** 31)
  t.comment(`seed ${seed}: the same moments again with --test-env=SEED=${seed}`)
  const { between } = seeded(seed)
  return { between, pause: (fromMs, toMs) => pause(between(fromMs, toMs)) }
}
