/** Keeps what a benchmark found: a table to read, a plot to look at, and all samples for whoever wants to compute. */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Facts } from '../facts.ts'
import type { Outcome } from '../outcome.ts'
import { markdown } from './markdown.ts'
import { svg } from './svg.ts'

export type Kept = Outcome & { facts: Facts }

export async function writeOutcome(outcome: Outcome, facts: Facts, out: string): Promise<void> {
  await mkdir(out, { recursive: true })
  const kept: Kept = { facts, ...outcome }
  const file = (extension: string) => join(out, `${outcome.name}.${extension}`)
  await writeFile(file('json'), `${JSON.stringify(kept, null, 1)}\n`)
  await writeFile(file('md'), markdown(outcome, facts))
  await writeFile(file('svg'), svg(outcome))
}
