/**
 * Writes the measured figures, and what follows from them for higher rates, between two markers in
 * docs/scaling.md.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Sample } from './measure.ts'
import { scalingPage } from './paths.ts'
import { resultOf } from './ratios.ts'
import { factLines } from './report/markdown.ts'
import type { Written } from './report/write.ts'

const begin = '<!-- figures: written by `npm run bench -- scaling` -->'
const end = '<!-- end of figures -->'

const rates = [10_000, 100_000, 1_000_000]
/**
 * How busy a core may be. The rest is for peaks, the loss of an instance, and batches smaller than
 * at full load.
 */
const busy = 0.6
const keysInUse = 1000

export async function writeScaling(folder: string): Promise<void> {
  const [hot, many] = await Promise.all([written(folder, 'hot-key'), written(folder, 'many-keys')])
  const page = await readFile(scalingPage, 'utf8')
  const [from, to] = [page.indexOf(begin), page.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`${scalingPage} has no "${begin}" followed by "${end}"`)
  const block = [begin, '', ...figures(hot, many), '', ''].join('\n')
  await writeFile(scalingPage, page.slice(0, from) + block + page.slice(to))
  process.stderr.write(`wrote ${scalingPage}\n`)
}

async function written(folder: string, name: string): Promise<Written> {
  const file = join(folder, `${name}.json`)
  try {
    return JSON.parse(await readFile(file, 'utf8'))
  } catch {
    throw new Error(`${file} is missing: run \`npm run bench -- ${name}\` first`)
  }
}

function figures(hot: Written, many: Written): string[] {
  const of = ({ tables }: Written, name: string): Sample => resultOf(tables[0]!.results, name).median
  const one = of(hot, 'latchkey')
  const thousand = of(many, 'latchkey')
  const single = of(hot, 'obvious').redisCpuUs
  const perKeySecondUs = postgresPerKeySecondUs(thousand, many.facts.seconds)
  return [
    'Measured:',
    '',
    '| figure | | value | from |',
    '|---|---|---:|---|',
    measured('c₁', 'CPU of an instance per request, one key', one.cpuUs, 'hot-key'),
    measured('c₂', 'CPU of an instance per request, a thousand keys', thousand.cpuUs, 'many-keys'),
    measured('r₁', 'CPU of Redis per request, one key', one.redisCpuUs, 'hot-key'),
    measured('r₂', 'CPU of Redis per request, a thousand keys', thousand.redisCpuUs, 'many-keys'),
    measured('r₃', 'CPU of Redis per request, one script call each (`obvious`)', single, 'hot-key'),
    measured('w', 'CPU of Postgres per second and key in use', perKeySecondUs, 'many-keys'),
    '',
    factLines(hot.facts)[0]!,
    '',
    'Extrapolated from those:',
    '',
    `| | ${rates.map((rate) => `${shown(rate)} req/s`).join(' | ')} |`,
    `|---|${'---:|'.repeat(rates.length)}`,
    cores('instances, one key', 'c₁', one.cpuUs),
    cores('instances, many keys', 'c₂', thousand.cpuUs),
    cores('Redis servers, batches as measured', 'r₂', thousand.redisCpuUs),
    cores('Redis servers, no batches at all', 'r₃', single),
    '',
    `The highest rate of one key, on one Redis core: 10⁶ · ${busy} / r₁ = ${shown(Math.floor((1e6 * busy) / one.redisCpuUs))} req/s in full batches, 10⁶ · ${busy} / r₃ = ${shown(Math.floor((1e6 * busy) / single))} req/s without batches.`,
    ...(perKeySecondUs === null
      ? []
      : [
          '',
          `The most keys in use per second that one Postgres core can serve, if each is used on one instance: 10⁶ · ${busy} / w = ${shown(Math.floor((1e6 * busy) / perKeySecondUs))}.`,
        ]),
  ]
}

/**
 * Postgres does most of this work once per key and clock second (last_used_at), and a window of n
 * seconds touches n + 1 clock seconds.
 */
const postgresPerKeySecondUs = ({ postgresCpuUs, requestsPerS }: Sample, seconds: number) =>
  postgresCpuUs === null ? null : (postgresCpuUs * requestsPerS * seconds) / (keysInUse * (seconds + 1))

const measured = (figure: string, what: string, us: number | null, from: string) =>
  `| ${figure} | ${what} | ${us === null ? '–' : `${us.toFixed(2)} µs`} | [${from}](../bench/results/${from}.md) |`

const cores = (what: string, figure: string, us: number) =>
  `| ${what} (${figure}) | ${rates.map((rate) => shown(Math.ceil((rate * us) / (1e6 * busy)))).join(' | ')} |`

const shown = (value: number) => String(value).replace(/\B(?=(\d{3})+$)/g, '\u2009')
