/**
 * Histograms in plain numbers, for what is measured on every request. An observation is a short
 * search and two additions; the samples for Prometheus are made at the scrape.
 */
import type { Metric, Registry } from 'prom-client'

/** For what takes a fraction of a second. */
export const secondsBounds: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
]

export interface Histogram {
  observe(value: number): void
  /** Observations in each bucket, not cumulative. The last bucket has what is above all bounds. */
  readonly counts: readonly number[]
  readonly sum: number
}

function createHistogram(bounds: readonly number[]): Histogram {
  const upTo = [...bounds, Infinity]
  const counts = upTo.map(() => 0)
  const histogram = {
    counts,
    sum: 0,
    observe(value: number) {
      let bucket = 0
      while (value > upTo[bucket]!) bucket++
      counts[bucket]!++
      histogram.sum += value
    },
  }
  return histogram
}

/**
 * A histogram of the registry, with one series for each set of labels. `series` adds one: call it
 * once for each, and never with a label that a client chooses.
 */
export function createHistograms(
  registry: Registry,
  { name, help, bounds }: { name: string; help: string; bounds: readonly number[] },
) {
  const all: { labels: Record<string, string>; histogram: Histogram }[] = []
  const metric = {
    name,
    help,
    type: 'histogram',
    get: async () => ({ name, help, type: 'histogram', values: all.flatMap(samplesOf) }),
    reset() {},
  }
  // prom-client's type asks for its own classes; a registry only calls `get`.
  registry.registerMetric(metric as unknown as Metric)

  function samplesOf({ labels, histogram }: (typeof all)[number]) {
    const below = cumulative(histogram.counts)
    const count = below.at(-1)!
    return [
      ...below.map((value, i) => ({
        metricName: `${name}_bucket`,
        labels: { ...labels, le: bounds[i] ?? '+Inf' },
        value,
      })),
      { metricName: `${name}_sum`, labels, value: histogram.sum },
      { metricName: `${name}_count`, labels, value: count },
    ]
  }

  return {
    series(labels: Record<string, string>): Histogram {
      const histogram = createHistogram(bounds)
      all.push({ labels, histogram })
      return histogram
    },
    /** Observations in each bucket, over all series. Not cumulative. */
    total: () =>
      [...bounds, Infinity].map((_, i) => all.reduce((sum, { histogram }) => sum + histogram.counts[i]!, 0)),
  }
}

function cumulative(counts: readonly number[]): number[] {
  let below = 0
  return counts.map((count) => {
    below += count
    return below
  })
}

/**
 * The value that a share `q` of the observations lies below, interpolated within its bucket; null
 * without observations. `counts` may be the difference of two readings: the observations between.
 */
export function quantile(q: number, bounds: readonly number[], counts: readonly number[]): number | null {
  const below = cumulative(counts)
  const total = below.at(-1)!
  if (total === 0) return null
  const rank = q * total
  const bucket = below.findIndex((count) => count >= rank)
  const from = bounds[bucket - 1] ?? 0
  const to = bounds[bucket] ?? from
  return from + ((to - from) * (rank - (below[bucket - 1] ?? 0))) / counts[bucket]!
}
