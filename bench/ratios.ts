/**
 * Comparisons, computed within each round, where both sides had about the same noise, and then
 * summarised over the rounds.
 */
import type { Sample } from './measure.ts'
import type { Result } from './rounds.ts'
import { type Estimate, estimate } from './statistics.ts'

export interface Ratio {
  what: string
  figure: 'CPU per request' | 'requests/s'
  perRound: Estimate
  /** The ratio of the two best quarters. */
  bestQuarters: number
}

/** All figures except that of Postgres, which some machines lack. */
type Figure = Exclude<keyof Sample, 'postgresCpuUs'>

/** The result of this name. Throws if there is none, which is a bug in the benchmark. */
export function resultOf(results: Result[], name: string): Result {
  const found = results.find((result) => result.name === name)
  if (found === undefined) throw new Error(`no result of ${name}`)
  return found
}

/** Combines one figure of several results, round by round. */
export function perRound(
  results: Result[],
  figure: Figure,
  names: string[],
  combine: (...values: number[]) => number,
): Estimate {
  const columns = names.map((name) => resultOf(results, name).samples.map((sample) => sample[figure]))
  const combined = columns[0]!.map((_, round) => combine(...columns.map((values) => values[round]!)))
  return estimate(combined, resultOf(results, names[0]!).launches)
}

export const ratio = (results: Result[], figure: Figure, of: string, to: string): Estimate =>
  perRound(results, figure, [of, to], (a, b) => a / b)

export const cpuRatio = (results: Result[], of: string, to: string): Ratio => ({
  what: `${of} / ${to}`,
  figure: 'CPU per request',
  perRound: ratio(results, 'cpuUs', of, to),
  bestQuarters: resultOf(results, of).lowerQuartile.cpuUs / resultOf(results, to).lowerQuartile.cpuUs,
})

export const throughputRatio = (results: Result[], of: string, to: string): Ratio => ({
  what: `${of} / ${to}`,
  figure: 'requests/s',
  perRound: ratio(results, 'requestsPerS', of, to),
  bestQuarters:
    resultOf(results, of).upperQuartile.requestsPerS / resultOf(results, to).upperQuartile.requestsPerS,
})
