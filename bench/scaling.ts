/**
 * Writes the measured figures, and what follows from them for higher rates, between two markers in
 * docs/scaling.md.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Sample } from './measure.ts'
import { results, scalingPage } from './paths.ts'
import { resultOf } from './ratios.ts'
import { shown } from './report/columns.ts'
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

/** At full load. At a steady, low rate a request costs more, but uses less of a core. */
const pages = ['hot-key', 'many-keys', 'even-more-keys', 'growth', 'processes'] as const
type Page = (typeof pages)[number]
export type Results = Record<Page, Written>

export async function writeScaling(): Promise<void> {
  const page = await readFile(scalingPage, 'utf8')
  const [from, to] = [page.indexOf(begin), page.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`${scalingPage} has no "${begin}" followed by "${end}"`)
  const block = [begin, '', ...figures(await readResults()), '', ''].join('\n')
  await writeFile(scalingPage, page.slice(0, from) + block + page.slice(to))
  process.stderr.write(`wrote ${scalingPage}\n`)
}

export async function readResults(): Promise<Results> {
  const found = await Promise.all(pages.map(async (name) => [name, await written(name)] as const))
  return Object.fromEntries(found) as Results
}

async function written(name: Page): Promise<Written> {
  const file = join(results, `${name}.json`)
  try {
    return JSON.parse(await readFile(file, 'utf8'))
  } catch {
    throw new Error(`${file} is missing: run \`npm run bench -- ${name}\` first`)
  }
}

export function figures(results: Results): string[] {
  const of = (page: Page, name: string, table = 0): Sample =>
    resultOf(results[page].tables[table]!.results, name).median
  const one = of('hot-key', 'latchkey')
  const thousand = of('many-keys', 'latchkey')
  const more = of('even-more-keys', 'latchkey')
  const most = mostOfRedis(results)
  const perKeySecondUs = postgresPerKeySecondUs(thousand)
  const firstUseUs = of('growth', 'latchkey', 1).postgresCpuUs
  return [
    'Measured:',
    '',
    '| figure | | value | from |',
    '|---|---|---:|---|',
    measured('c₁', 'CPU of an instance per request, one key', one.cpuUs, 'hot-key'),
    measured('c₂', 'CPU of an instance per request, a thousand keys', thousand.cpuUs, 'many-keys'),
    measured('c₃', 'CPU of an instance per request, keys used seldom', more.cpuUs, 'even-more-keys'),
    measured('r₁', 'CPU of Redis per request, one key', one.redisCpuUs, 'hot-key'),
    measured('r₂', 'CPU of Redis per request, a thousand keys', thousand.redisCpuUs, 'many-keys'),
    measured('r₃', `CPU of Redis per request, the most measured (\`${most.name}\`)`, most.us, most.page),
    measured('w₁', 'CPU of Postgres per second and key used often', perKeySecondUs, 'many-keys'),
    measured('w₂', 'CPU of Postgres per use of a key used seldom', more.postgresCpuUs, 'even-more-keys'),
    measured('w₃', 'CPU of Postgres per first use of a key', firstUseUs, 'growth'),
    '',
    ...pages.map((page) => `- \`${page}\`: ${factLines(results[page].facts)[0]}`),
    '',
    'Extrapolated from those:',
    '',
    `| | ${rates.map((rate) => `${shown(rate, 0)} req/s`).join(' | ')} |`,
    `|---|${'---:|'.repeat(rates.length)}`,
    cores('instances, few hot keys', 'c₁', one.cpuUs),
    cores('instances, many keys used often', 'c₂', thousand.cpuUs),
    cores('instances, keys used seldom', 'c₃', more.cpuUs),
    cores('Redis servers, batches as measured', 'r₂', thousand.redisCpuUs),
    cores('Redis servers, the most measured', 'r₃', most.us),
    ...postgres('Postgres cores, keys used seldom', 'w₂', more.postgresCpuUs),
    ...postgres('Postgres cores, each key for the first time', 'w₃', firstUseUs),
    '',
    `The highest rate of one key, on one Redis core: 10⁶ · ${busy} / r₁ = ${shown(perCore(one.redisCpuUs), 0)} req/s in full batches, 10⁶ · ${busy} / r₃ = ${shown(perCore(most.us), 0)} req/s at the cost of r₃.`,
    ...(perKeySecondUs === null
      ? []
      : [
          '',
          `The most keys used often that one Postgres core can serve, if each is used on one instance: 10⁶ · ${busy} / w₁ = ${shown(perCore(perKeySecondUs), 0)}.`,
        ]),
  ]
}

/** The most expensive request: in small batches, in a call of its own, or for a new key. */
function mostOfRedis(results: Results) {
  const rows = pages.flatMap((page) =>
    results[page].tables.flatMap((table) =>
      table.results.map(({ name, median }) => ({ page, name, us: median.redisCpuUs })),
    ),
  )
  const ours = rows.filter(({ name }) => name.includes('latchkey'))
  return ours.reduce((most, row) => (row.us > most.us ? row : most))
}

/** The lead-in has already written the last uses of the second in which a window begins. */
const postgresPerKeySecondUs = ({ postgresCpuUs, requestsPerS }: Sample) =>
  postgresCpuUs === null ? null : (postgresCpuUs * requestsPerS) / keysInUse

const measured = (figure: string, what: string, us: number | null, from: Page) =>
  `| ${figure} | ${what} | ${us === null ? '–' : `${us.toFixed(2)} µs`} | [${from}](../bench/results/${from}.md) |`

const cores = (what: string, figure: string, us: number) =>
  `| ${what} (${figure}) | ${rates.map((rate) => shown(Math.ceil((rate * us) / (1e6 * busy)), 0)).join(' | ')} |`

const postgres = (what: string, figure: string, us: number | null) =>
  us === null ? [] : [cores(what, figure, us)]

const perCore = (us: number) => Math.floor((1e6 * busy) / us)
