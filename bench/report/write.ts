/** Writes what a benchmark found: tables and a plot to read, and all samples as JSON. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Facts } from '../facts.ts'
import type { Outcome } from '../outcome.ts'
import { markdown } from './markdown.ts'
import { svg } from './svg.ts'

export type Written = Outcome & { facts: Facts }

export async function writeOutcome(outcome: Outcome, facts: Facts, out: string): Promise<void> {
  const written: Written = { facts, ...outcome }
  const file = (extension: string) => join(out, `${outcome.name}.${extension}`)
  await writeFile(file('json'), `${JSON.stringify(written, null, 1)}\n`)
  await writeFile(file('md'), markdown(outcome, facts))
  await writeFile(file('svg'), svg(outcome))
}
