// What is said of times that were measured side by side: medians, their differences, and how sure of those one can be.

/** Times in microseconds, one for each round; the same round in every series. */
export type Series = Float64Array

export interface Difference {
  /** Of the medians. */
  us: number
  /** Of what 2,000 resamples gave, the middle 95 %. */
  lowUs: number
  highUs: number
}

const resamples = 2000
const confidence = 0.95

export const median = (series: Series): number =>
  weightedMedian(inOrder(series), new Int32Array(series.length).fill(1))

/**
 * Median of each series less that of the first, with a bootstrap confidence interval. A resample draws whole rounds, for
 * all series the same: what slowed a round down slowed all of it, and cancels.
 */
export function differences(series: readonly Series[]): Difference[] {
  const rounds = series[0]!.length
  const ordered = series.map(inOrder)
  const spread = series.map(() => new Float64Array(resamples))
  const drawn = new Int32Array(rounds)
  for (let i = 0; i < resamples; i++) {
    drawn.fill(0)
    for (let n = 0; n < rounds; n++) drawn[Math.floor(Math.random() * rounds)]!++
    const medians = ordered.map((one) => weightedMedian(one, drawn))
    medians.forEach((one, s) => {
      spread[s]![i] = one - medians[0]!
    })
  }
  return series.map((one, s) => {
    const sorted = spread[s]!.sort()
    const cut = Math.floor((resamples * (1 - confidence)) / 2)
    return { us: median(one) - median(series[0]!), lowUs: sorted[cut]!, highUs: sorted[resamples - 1 - cut]! }
  })
}

/** How far from 0 the whole interval is; 0 where it holds 0. */
export const surely = ({ lowUs, highUs }: Difference): number => Math.max(lowUs, -highUs, 0)

interface Ordered {
  series: Series
  /** Rounds by their time. */
  rounds: Int32Array
}

function inOrder(series: Series): Ordered {
  const rounds = Int32Array.from(series, (_, round) => round)
  return { series, rounds: rounds.sort((a, b) => series[a]! - series[b]!) }
}

/** Of the rounds as often as each was drawn: counted off in order, since sorting 2,000 times would take minutes. */
function weightedMedian({ series, rounds }: Ordered, drawn: Int32Array): number {
  let left = Math.ceil(rounds.length / 2)
  for (const round of rounds) {
    left -= drawn[round]!
    if (left <= 0) return series[round]!
  }
  return Number.NaN
}
