/** The driver's command line. */
import { parseArgs } from 'node:util'
import { results } from './paths.ts'

export interface Options {
  names: string[]
  /** Length of a window, in seconds. */
  seconds: number
  /** Number of windows for each candidate. */
  rounds: number
  /** Where the results go: a trial run must not overwrite the published figures. */
  out: string
  /** The folder of another checkout of Latchkey to measure beside this one. */
  before: string | null
}

interface Known {
  benchmarks: string[]
  tools: string[]
  /** The benchmarks that --before takes part in. */
  comparisons: string[]
}

export function readOptions(args: string[], { benchmarks, tools, comparisons }: Known): Options {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      seconds: { type: 'string', default: '2' },
      rounds: { type: 'string', default: '15' },
      out: { type: 'string' },
      before: { type: 'string' },
    },
  })
  const all = [...benchmarks, ...tools]
  const unknown = positionals.find((name) => !all.includes(name))
  if (unknown !== undefined) throw new Error(`no benchmark "${unknown}"; there are ${all.join(', ')}`)
  if (values.before !== undefined) {
    if (positionals.some((name) => !comparisons.includes(name)))
      throw new Error(`--before is for ${comparisons.join(', ')} only`)
    if (values.out === undefined)
      throw new Error('--before needs --out: a comparison of two checkouts must not overwrite bench/results')
  }
  if (values.out !== undefined && positionals.includes('scaling'))
    throw new Error('scaling reads bench/results and writes docs/scaling.md: it takes no --out')
  const fallback = values.before === undefined ? benchmarks : comparisons
  return {
    names: positionals.length > 0 ? [...new Set(positionals)] : fallback,
    seconds: wholeNumber('seconds', values.seconds),
    rounds: wholeNumber('rounds', values.rounds),
    out: values.out ?? results,
    before: values.before ?? null,
  }
}

function wholeNumber(name: string, text: string): number {
  if (/^[1-9][0-9]{0,3}$/.test(text)) return Number(text)
  throw new Error(`--${name} must be a whole number from 1 to 9999`)
}
