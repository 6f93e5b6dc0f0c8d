// Random moments that can be had again: the seed is told, and taken from SEED.
import type { Test } from 'tap'

/** A function that gives a number from 0 up to `below`. */
export function chance(t: Test): (below: number) => number {
  let state = Number(process.env.SEED) || Date.now() % 1_000_000_007
  t.comment(`random moments by SEED=${state}`)
  // mulberry32
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return (((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * below
  }
}
