/**
 * `npm run bench -- [name…] [--seconds N] [--rounds N] [--out FOLDER]`: starts all that is needed, measures, writes bench/results
 * when nothing has failed, and says which target is met and which is not.
 *
 *   hot-key, many-keys, growth, processes   the benchmarks; all of them where none is named
 *   profile                                 where Latchkey's time goes
 *   scaling                                 writes the figures of bench/results into docs/scaling.md
 */
import { growth } from './benchmarks/growth.ts'
import { hotKey } from './benchmarks/hot-key.ts'
import { manyKeys } from './benchmarks/many-keys.ts'
import { processes } from './benchmarks/processes.ts'
import { readFacts } from './facts.ts'
import { type Options, readOptions } from './options.ts'
import type { Outcome } from './outcome.ts'
import { profile } from './profile.ts'
import { markdown, targetLine } from './report/markdown.ts'
import { writeOutcome } from './report/write.ts'
import { openRig, type Rig } from './rig.ts'
import { writeScaling } from './scaling.ts'

const benchmarks: Record<string, (rig: Rig) => Promise<Outcome | null>> = {
  'hot-key': hotKey,
  'many-keys': manyKeys,
  growth,
  processes,
}
const tools: Record<string, (rig: Rig) => Promise<void>> = { profile }

const print = (text: string) => process.stdout.write(`${text}\n`)

async function runAll(rig: Rig, { names, out }: Options): Promise<void> {
  const outcomes: Outcome[] = []
  const write: (() => Promise<void>)[] = []
  for (const name of names) {
    rig.say(`\n${name}`)
    await tools[name]?.(rig)
    const outcome = (await benchmarks[name]?.(rig)) ?? null
    if (outcome === null) continue
    const facts = readFacts(rig)
    write.push(() => writeOutcome(outcome, facts, out))
    print(markdown(outcome, facts))
    outcomes.push(outcome)
  }
  // A run that fails leaves the figures of the last one that did not.
  for (const one of write) await one()
  for (const { name, targets } of outcomes) {
    for (const target of targets) print(`${name.padEnd(10)}  ${targetLine(target)}`)
  }
}

let interrupted = false

async function main(): Promise<void> {
  const known = { benchmarks: Object.keys(benchmarks), tools: [...Object.keys(tools), 'scaling'] }
  const options = readOptions(process.argv.slice(2), known)
  const names = options.names.filter((name) => name !== 'scaling')
  if (names.length > 0) {
    const rig = await openRig(options)
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.once(signal, () => {
        interrupted = true
        rig.close().finally(() => process.exit(1))
      })
    }
    try {
      await runAll(rig, { ...options, names })
    } finally {
      await rig.close()
    }
  }
  if (options.names.includes('scaling')) await writeScaling(options.out)
}

main().catch((error: Error) => {
  // What fails then fails because its servers were stopped.
  process.stderr.write(`bench: ${interrupted ? 'interrupted' : error.message}\n`)
  process.exitCode = 1
})
