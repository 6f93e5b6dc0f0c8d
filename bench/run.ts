/**
 * `npm run bench`: starts everything it needs, measures, writes bench/results, and says which targets
 * were met. options.ts has its command line.
 */
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import { growth } from './benchmarks/growth.ts'
import { hotKey } from './benchmarks/hot-key.ts'
import { inProcess } from './benchmarks/in-process.ts'
import { evenMoreKeys, manyKeys } from './benchmarks/many-keys.ts'
import { operations } from './benchmarks/operations.ts'
import { processes } from './benchmarks/processes.ts'
import { steady } from './benchmarks/steady.ts'
import { viewer } from './benchmarks/viewer.ts'
import { readOptions, usage } from './options.ts'
import { profile } from './profile.ts'
import { openRig } from './rig.ts'
import { type Run, runAll } from './run-all.ts'
import { writeScaling } from './scaling.ts'
import { stopRequested } from './stopping.ts'

const comparisons = { 'hot-key': hotKey, 'many-keys': manyKeys, 'even-more-keys': evenMoreKeys }
const benchmarks: Record<string, Run> = {
  ...comparisons,
  growth,
  processes,
  'in-process': inProcess,
  steady,
  viewer,
  operations,
}
const tools: Record<string, Run> = { profile }

/** `profile` and the results are printed, so what a person is told goes to stderr. */
const stopping = stopRequested((line) => process.stderr.write(`${line}\n`))

const print = (text: string) => process.stdout.write(`${text}\n`)

async function main(): Promise<void> {
  if (process.argv.includes('--help')) {
    print(usage)
    return
  }
  const options = readOptions(process.argv.slice(2), {
    benchmarks: Object.keys(benchmarks),
    tools: [...Object.keys(tools), 'scaling'],
    comparisons: Object.keys(comparisons),
  })
  const names = options.names.filter((name) => name !== 'scaling')
  if (names.length > 0) {
    await mkdir(options.out, { recursive: true })
    const rig = await openRig(options)
    try {
      stopping.throwIfAborted()
      const runs = { ...benchmarks, ...tools }
      await Promise.race([
        runAll(rig, { names, runs, out: options.out, stopping, print }),
        once(stopping, 'abort'),
      ])
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
