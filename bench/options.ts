/** The driver's command line. */
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { results } from './paths.ts'

export const usage = `npm run bench -- [name…] [option…]

  hot-key, many-keys, even-more-keys,
  growth, processes, in-process,
  steady, viewer, operations           the benchmarks; all of them if none is named
  profile                              where Latchkey's time goes
  scaling                              puts the figures of bench/results into docs/scaling.md

  --seconds N      length of a window; 2 if absent
  --rounds N       number of windows for each candidate; 15 if absent
  --out FOLDER     where the results go, instead of bench/results
  --before FOLDER  measure another, built checkout too; needs --out`

export interface Options {
  names: string[]
  /** Length of a window, in seconds. */
  seconds: number
  /** Number of windows for each candidate. */
  rounds: number
  /** Where the results go: a trial run must not overwrite the published figures. */
  out: string
  /** The program of another checkout of Latchkey to measure beside this one. */
  before: string | null
}

interface Known {
  benchmarks: string[]
  tools: string[]
  /** The benchmarks that --before takes part in. */
  comparisons: string[]
}

export function readOptions(args: string[], { benchmarks, tools, comparisons }: Known): Options {
  const { values, positionals } = parse(args)
  const all = [...benchmarks, ...tools]
  const unknown = positionals.find((name) => !all.includes(name))
  if (unknown !== undefined) throw new Error(`no benchmark "${unknown}"; there are ${all.join(', ')}`)
  if (values.before !== undefined) {
    if (positionals.some((name) => !comparisons.includes(name)))
      throw new Error(`--before is for ${comparisons.join(', ')} only`)
    if (values.out === undefined)
      throw new Error('--before needs --out: a comparison of two checkouts must not overwrite bench/results')
  }
  if (positionals.includes('scaling') && args.some((arg) => arg.startsWith('--')))
    throw new Error('scaling reads bench/results and writes docs/scaling.md: it takes no options')
  const cli = values.before === undefined ? null : resolve(values.before, 'dist/src/cli.js')
  if (cli !== null && !existsSync(cli))
    throw new Error(`--before: ${cli} is missing; run npm ci and npm run build there`)
  const fallback = values.before === undefined ? benchmarks : comparisons
  return {
    names: positionals.length > 0 ? [...new Set(positionals)] : fallback,
    seconds: wholeNumber('seconds', values.seconds),
    rounds: wholeNumber('rounds', values.rounds),
    out: values.out ?? results,
    before: cli,
  }
}

function parse(args: string[]) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: {
        seconds: { type: 'string', default: '2' },
        rounds: { type: 'string', default: '15' },
        out: { type: 'string' },
        before: { type: 'string' },
      },
    })
  } catch (error) {
    // Node's own advice is about arguments that begin with a dash.
    throw new Error(`${(error as Error).message.split('. ')[0]}; see npm run bench -- --help`)
  }
}

function wholeNumber(name: string, text: string): number {
  if (/^[1-9][0-9]{0,3}$/.test(text)) return Number(text)
  throw new Error(`--${name} must be a whole number from 1 to 9999`)
}
