// Medians of times that were measured side by side, their differences, and how certain these are.

/** Times in microseconds, one for each round; the same round in every series. */
type Series = Float64Array

export interface Difference {
  medianUs: number
  /** Between the medians of this series and of the first. */
  us: number
  /** The middle 95 % of what the resamples gave. */
  lowUs: number
  highUs: number
}

const resamples = 2000
const confidence = 0.95

/**
 * Compares each series with the first, with a bootstrap confidence interval. A resample draws whole
 * rounds, the same for all series: what slowed a round down slowed all of it, and cancels out.
 */
export function differences(series: readonly Series[]): Difference[] {
  const rounds = series[0]!.length
  const orders = series.map((one) =>
    Int32Array.from(one, (_, round) => round).sort((a, b) => one[a]! - one[b]!),
  )
  const mediansOf = (drawn: Int32Array) => series.map((one, s) => weightedMedian(one, orders[s]!, drawn))
  const spread = series.map(() => new Float64Array(resamples))
  const drawn = new Int32Array(rounds)
  for (let i = 0; i < resamples; i++) {
    drawn.fill(0)
    for (let n = 0; n < rounds; n++) drawn[Math.floor(Math.random() * rounds)]!++
    for (const [s, one] of mediansOf(drawn).entries()) spread[s]![i] = one
    for (const one of spread.toReversed()) one[i]! -= spread[0]![i]!
  }
  const cut = Math.floor((resamples * (1 - confidence)) / 2)
  const medians = mediansOf(drawn.fill(1))
  return medians.map((medianUs, s) => {
    const sorted = spread[s]!.sort()
    return { medianUs, us: medianUs - medians[0]!, lowUs: sorted[cut]!, highUs: sorted[resamples - 1 - cut]! }
  })
}

/**
 * Of the rounds as often as each was drawn. Counts them in order, because sorting 2,000 times would
 * take minutes.
 */
function weightedMedian(series: Series, order: Int32Array, drawn: Int32Array): number {
  let left = Math.ceil(series.length / 2)
  for (const round of order) {
    left -= drawn[round]!
    if (left <= 0) return series[round]!
  }
  return Number.NaN
}
