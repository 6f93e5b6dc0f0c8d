/** The driver's command line. */
import { parseArgs } from 'node:util'
import { results } from './paths.ts'

export interface Options {
  names: string[]
  /** Of each measurement. */
  seconds: number
  /** Measurements of each candidate. */
  rounds: number
  /** Where the results go: trial runs must not overwrite the figures that are kept. */
  out: string
}

export function readOptions(args: string[], known: { benchmarks: string[]; tools: string[] }): Options {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      seconds: { type: 'string', default: '8' },
      rounds: { type: 'string', default: '5' },
      out: { type: 'string', default: results },
    },
  })
  const all = [...known.benchmarks, ...known.tools]
  const unknown = positionals.find((name) => !all.includes(name))
  if (unknown !== undefined)
    throw new Error(`there is no benchmark "${unknown}"; there are ${all.join(', ')}`)
  return {
    names: positionals.length > 0 ? positionals : known.benchmarks,
    seconds: wholeNumber('seconds', values.seconds),
    rounds: wholeNumber('rounds', values.rounds),
    out: values.out,
  }
}

function wholeNumber(name: string, text: string): number {
  if (/^[1-9][0-9]{0,3}$/.test(text)) return Number(text)
  throw new Error(`--${name} must be a whole number from 1 to 9999`)
}
