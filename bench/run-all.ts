/** Runs benchmarks one after the other, writes what each has found, and sums up at the end. */
import { readFacts } from './facts.ts'
import type { Outcome } from './outcome.ts'
import { markdown, ratioLine, targetLine } from './report/markdown.ts'
import { writeOutcome } from './report/write.ts'
import type { Rig } from './rig.ts'

/** Without an outcome, it was skipped, or it has printed what it found. */
// biome-ignore lint/suspicious/noConfusingVoidType: of a function that returns nothing.
export type Run = (rig: Rig) => Promise<Outcome | null | void>

interface RunAll {
  names: string[]
  /** By name. */
  runs: Record<string, Run>
  /** The folder for the results. */
  out: string
  stopping: AbortSignal
  print(text: string): void
}

/**
 * A benchmark writes when it is done, so that one that fails an hour later costs only its own
 * results.
 */
export async function runAll(rig: Rig, { names, runs, out, stopping, print }: RunAll): Promise<void> {
  const outcomes: Outcome[] = []
  for (const name of names) {
    rig.say(`\n${name}`)
    const outcome = await runs[name]!(rig)
    // Ctrl-C reaches the load generator too: it ends the last window early and without an error.
    stopping.throwIfAborted()
    if (!outcome) continue
    const facts = readFacts(rig, outcome)
    await writeOutcome(outcome, facts, out)
    print(markdown(outcome, facts))
    outcomes.push(outcome)
  }
  for (const { name, tables, targets } of outcomes) {
    for (const { title, ratios } of tables)
      for (const one of ratios) print(`${name.padEnd(10)}  ${title}: ${one.figure}, ${ratioLine(one)}`)
    for (const target of targets) print(`${name.padEnd(10)}  ${targetLine(target)}`)
  }
}
