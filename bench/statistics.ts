/** Summarises several measurements. */

/** Interpolates linearly between the two nearest values; a share of 0.5 is the median. */
export function quantile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  const at = (sorted.length - 1) * share
  const below = sorted[Math.floor(at)]!
  const above = sorted[Math.ceil(at)]!
  return below + (above - below) * (at % 1)
}

export const median = (values: number[]): number => quantile(values, 0.5)

/** A median, and the 95 % confidence interval of the true one. */
export interface Estimate {
  median: number
  low: number
  high: number
}

const resamples = 2000

/** Mulberry32. Seeded, so that the same values always get the same interval. */
function randomNumbers(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/**
 * Bootstraps: medians of resamples, drawn with replacement, vary as the median would from run to
 * run.
 */
export function estimate(values: number[]): Estimate {
  const random = randomNumbers(1)
  const draw = () => values[Math.floor(random() * values.length)]!
  const medians = Array.from({ length: resamples }, () => median(values.map(draw)))
  return { median: median(values), low: quantile(medians, 0.025), high: quantile(medians, 0.975) }
}
