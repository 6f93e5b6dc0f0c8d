/** Comparisons: computed within each round, where both sides had about the same noise, then summed up over the rounds. */
import type { Sample } from './measure.ts'
import type { Result } from './rounds.ts'
import { type Estimate, estimate } from './statistics.ts'

export interface Ratio {
  what: string
  perRound: Estimate
  /** One best quarter by the other. */
  bestQuarters: number
}

/** Not the Postgres figure, which some machines lack. */
type Figure = Exclude<keyof Sample, 'postgresCpuUs'>

/** The result of this name. A benchmark without it is a mistake of ours. */
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
  return estimate(columns[0]!.map((_, round) => combine(...columns.map((values) => values[round]!))))
}

export const ratio = (results: Result[], figure: Figure, of: string, to: string): Estimate =>
  perRound(results, figure, [of, to], (a, b) => a / b)

export const cpuRatio = (results: Result[], of: string, to: string): Ratio => ({
  what: `${of} / ${to}`,
  perRound: ratio(results, 'cpuUs', of, to),
  bestQuarters: resultOf(results, of).lowerQuartile.cpuUs / resultOf(results, to).lowerQuartile.cpuUs,
})
