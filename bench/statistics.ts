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

/**
 * A median, and an interval for the true one. It aims at 95 %. Few values cannot tell as much: the
 * lowest and the highest of four include the true median in 87.5 %.
 */
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
 * run. The rounds of one launch resemble each other, so a resample draws launches, and then rounds
 * of each. `values` come launch by launch, equally many of each.
 */
export function estimate(values: number[], launches = 1): Estimate {
  const random = randomNumbers(1)
  const redraw = <T>(from: T[]) => from.map(() => from[Math.floor(random() * from.length)]!)
  const rounds = values.length / launches
  const byLaunch = Array.from({ length: launches }, (_, i) => values.slice(i * rounds, (i + 1) * rounds))
  const medians = Array.from({ length: resamples }, () => median(redraw(byLaunch).flatMap(redraw)))
  return { median: median(values), low: quantile(medians, 0.025), high: quantile(medians, 0.975) }
}
