/**
 * `npm run bench -- [name…] [--seconds N] [--rounds N] [--out FOLDER] [--before FOLDER]`: starts
 * everything it needs, measures, writes bench/results, and says which targets were met.
 *
 *   hot-key, many-keys, even-more-keys,
 *   growth, processes, in-process,
 *   steady, viewer, operations           the benchmarks; all of them if none is named
 *   profile                              where Latchkey's time goes
 *   scaling                              puts the figures of bench/results into docs/scaling.md
 */
import { once } from 'node:events'
import { growth } from './benchmarks/growth.ts'
import { hotKey } from './benchmarks/hot-key.ts'
import { inProcess } from './benchmarks/in-process.ts'
import { evenMoreKeys, manyKeys } from './benchmarks/many-keys.ts'
import { operations } from './benchmarks/operations.ts'
import { processes } from './benchmarks/processes.ts'
import { steady } from './benchmarks/steady.ts'
import { viewer } from './benchmarks/viewer.ts'
import { type Facts, readFacts } from './facts.ts'
import { type Options, readOptions } from './options.ts'
import type { Outcome } from './outcome.ts'
import { profile } from './profile.ts'
import { markdown, ratioLine, targetLine } from './report/markdown.ts'
import { writeOutcome } from './report/write.ts'
import { openRig, type Rig } from './rig.ts'
import { writeScaling } from './scaling.ts'
import { stopRequested } from './stopping.ts'

const comparisons = { 'hot-key': hotKey, 'many-keys': manyKeys, 'even-more-keys': evenMoreKeys }
const benchmarks: Record<string, (rig: Rig) => Promise<Outcome | null>> = {
  ...comparisons,
  growth,
  processes,
  'in-process': inProcess,
  steady,
  viewer,
  operations,
}
const tools: Record<string, (rig: Rig) => Promise<void>> = { profile }

const print = (text: string) => process.stdout.write(`${text}\n`)

/** `profile` and the results are printed, so what a person is told goes to stderr. */
const stopping = stopRequested((line) => process.stderr.write(`${line}\n`))

/** Writes only at the end, so that a failed run leaves the results of the last good one. */
async function runAll(rig: Rig, { names, out }: Options): Promise<void> {
  const found: { outcome: Outcome; facts: Facts }[] = []
  for (const name of names) {
    rig.say(`\n${name}`)
    await tools[name]?.(rig)
    const outcome = (await benchmarks[name]?.(rig)) ?? null
    if (outcome === null) continue
    const facts = readFacts(rig)
    print(markdown(outcome, facts))
    found.push({ outcome, facts })
  }
  // Ctrl-C reaches the load generator too: it ends the last window early and without an error.
  stopping.throwIfAborted()
  for (const { outcome, facts } of found) await writeOutcome(outcome, facts, out)
  for (const { outcome } of found) printSummary(outcome)
}

function printSummary({ name, tables, targets }: Outcome): void {
  for (const one of tables.flatMap(({ ratios }) => ratios))
    print(`${name.padEnd(10)}  ${one.figure}, ${ratioLine(one)}`)
  for (const target of targets) print(`${name.padEnd(10)}  ${targetLine(target)}`)
}

async function main(): Promise<void> {
  const options = readOptions(process.argv.slice(2), {
    benchmarks: Object.keys(benchmarks),
    tools: [...Object.keys(tools), 'scaling'],
    comparisons: Object.keys(comparisons),
  })
  const names = options.names.filter((name) => name !== 'scaling')
  if (names.length > 0) {
    const rig = await openRig(options)
    try {
      stopping.throwIfAborted()
      await Promise.race([runAll(rig, { ...options, names }), once(stopping, 'abort')])
      stopping.throwIfAborted()
    } finally {
      await rig.close()
    }
  }
  if (options.names.includes('scaling')) await writeScaling()
}

main().catch((error: Error) => {
  process.stderr.write(`bench: ${stopping.aborted ? 'interrupted' : error.message}\n`)
  process.exitCode = 1
  // A benchmark under way would go on, with its servers gone.
  if (stopping.aborted) process.exit()
})
