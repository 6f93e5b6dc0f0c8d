/** What a benchmark found. */
import type { Sample } from './measure.ts'
import type { Ratio } from './ratios.ts'
import type { Result } from './rounds.ts'
import type { Estimate } from './statistics.ts'

export interface Table {
  title: string
  /** What was done, in a sentence or two. */
  about: string
  results: Result[]
  /** All of one figure. */
  ratios: Ratio[]
  /** The columns to show; all of them if absent. */
  figures?: (keyof Sample)[]
}

/** A promise in figures. A missed one is reported like the others. */
export interface Target {
  what: string
  want: string
  got: string
  met: boolean
}

export interface Outcome {
  name: string
  title: string
  tables: Table[]
  targets: Target[]
  notes: string[]
}

const rounded = (value: number) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3))

export const interval = ({ low, high }: Estimate) => `${low.toFixed(2)}–${high.toFixed(2)}`

/** The median decides; the interval says how sure that is. */
const target = (
  what: string,
  got: Estimate | number,
  sign: '≤' | '≥',
  limit: number,
  unit: string,
): Target => {
  const value = typeof got === 'number' ? got : got.median
  return {
    what,
    want: `${sign} ${rounded(limit)} ${unit}`.trim(),
    got: `${rounded(value)} ${unit}`.trim() + (typeof got === 'number' ? '' : ` (${interval(got)})`),
    met: sign === '≤' ? value <= limit : value >= limit,
  }
}

export const atMost = (what: string, got: Estimate | number, limit: number, unit: string) =>
  target(what, got, '≤', limit, unit)

export const atLeast = (what: string, got: Estimate | number, limit: number, unit: string) =>
  target(what, got, '≥', limit, unit)
