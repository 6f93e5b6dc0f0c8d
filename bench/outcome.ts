/** What a benchmark has found. */
import type { Result } from './rounds.ts'

export interface Table {
  title: string
  /** What was done, in a sentence or two. */
  about: string
  results: Result[]
}

/** A promise in figures. One that is not kept is printed as such, and never left out. */
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

const shown = (value: number) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3))

export const atMost = (what: string, got: number, limit: number, unit: string): Target => ({
  what,
  want: `≤ ${shown(limit)} ${unit}`.trim(),
  got: `${shown(got)} ${unit}`.trim(),
  met: got <= limit,
})

export const atLeast = (what: string, got: number, limit: number, unit: string): Target => ({
  what,
  want: `≥ ${shown(limit)} ${unit}`.trim(),
  got: `${shown(got)} ${unit}`.trim(),
  met: got >= limit,
})

/** The result of this name; a benchmark without it is a mistake of ours. */
export function resultOf(results: Result[], name: string): Result {
  const found = results.find((result) => result.name === name)
  if (found === undefined) throw new Error(`no result of ${name}`)
  return found
}
