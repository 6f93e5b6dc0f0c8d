/** What the plugin adds to a request of a Fastify application, beside what rate limiters add. */
import type { Subject } from '../measure.ts'
import { atMost, type Outcome, type Table, type Target } from '../outcome.ts'
import { cpuRatio, perRound } from '../ratios.ts'
import type { Rig } from '../rig.ts'
import { inLaunches, type Result } from '../rounds.ts'
import { assertSameAnswer } from '../same-answer.ts'
import { firstLine, howMany } from './compare.ts'

const limiters = ['fastify-rate-limit', 'flexible'] as const
const names = ['plugin', 'bare', ...limiters] as const

const settings = [
  { keys: 1, title: 'One key', addedUs: 3 },
  { keys: 1000, title: 'A thousand keys', addedUs: 4 },
]
/** By what each rate limiter adds, although they do not authenticate. */
const shareMax = 0.5

export async function inProcess(rig: Rig): Promise<Outcome> {
  const tables: Table[] = []
  const targets: Target[] = []
  const notes = [
    '`plugin`: a Fastify application that registers `latchkey`.',
    '`bare`: the same application without it, sending the same headers and bytes.',
    '`fastify-rate-limit`, `flexible`: the same with @fastify/rate-limit or rate-limiter-flexible, counting in Redis. They do not authenticate.',
  ]
  for (const { keys, title, addedUs } of settings) {
    const results = await compare(rig, keys)
    const about = `${title}, ${howMany}, GET /v1/verify.`
    tables.push({
      title,
      about,
      results,
      ratios: names.slice(1).map((name) => cpuRatio(results, 'plugin', name)),
    })
    targets.push(
      atMost(`${title}: CPU per request added to bare`, added(results, 'plugin'), addedUs, 'µs'),
      ...limiters.map((name) =>
        atMost(`${title}: CPU added, by that of ${name}`, shareOf(results, name), shareMax, '×'),
      ),
    )
    const parts = names
      .filter((name) => name !== 'bare')
      .map((name) => `\`${name}\` ${added(results, name).median.toFixed(1)} µs`)
    notes.push(`${title}: CPU per request above that of \`bare\`, median of the rounds: ${parts.join(', ')}.`)
  }
  return { name: 'in-process', title: 'Inside an application', tables, targets, notes }
}

async function compare(rig: Rig, keys: number): Promise<Result[]> {
  const database = await rig.database(`in_process_${keys}`, keys)
  const { tokensFile } = database
  const token = await firstLine(tokensFile)
  return inLaunches(rig, async () => {
    const subjects: Subject[] = []
    for (const name of names) {
      const one = await rig.start(name, database)
      const tokens = () => ({ first: 0, count: keys })
      subjects.push({ name, url: one.url, processes: [one], tokensFile, tokens })
    }
    await assertSameAnswer(subjects.map(({ name, url }) => ({ name, url, token })))
    return subjects
  })
}

const added = (results: Result[], name: string) =>
  perRound(results, 'cpuUs', [name, 'bare'], (us, floorUs) => us - floorUs)

const shareOf = (results: Result[], limiter: string) =>
  perRound(
    results,
    'cpuUs',
    ['plugin', limiter, 'bare'],
    (us, limiterUs, floorUs) => (us - floorUs) / (limiterUs - floorUs),
  )
