/** Chance that a seed decides. */
export interface Chance {
  /** From 0 to 1, exclusive. */
  next(): number
  between(from: number, to: number): number
  /** A whole number from 0 to `below`, exclusive. */
  whole(below: number): number
  is(probability: number): boolean
  oneOf<T>(of: readonly T[]): T
}

/** mulberry32: 32 bits of state are enough for one short run. */
export function chanceOf(seed: number): Chance {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  // The first numbers of neighbouring seeds resemble each other.
  for (let i = 0; i < 3; i++) next()
  const whole = (below: number) => Math.floor(next() * below)
  return {
    next,
    whole,
    between: (from, to) => from + next() * (to - from),
    is: (probability) => next() < probability,
    oneOf: (of) => of[whole(of.length)]!,
  }
}
