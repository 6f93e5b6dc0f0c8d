/**
 * Latency at rates that a service really has, with Redis and Postgres on this machine or across a
 * network.
 */
import { checked } from '../load/load.ts'
import { steadyLoad } from '../load/steady.ts'
import type { Subject } from '../measure.ts'
import { atMost, type Outcome, type Table, type Target } from '../outcome.ts'
import { cpuRatio, perRound, ratio } from '../ratios.ts'
import type { Database, Rig } from '../rig.ts'
import { inRounds } from '../rounds.ts'
import { assertSameAnswer } from '../same-answer.ts'
import type { CandidateName } from '../servers/candidate.ts'
import { awayFrom, roundTripMs } from '../servers/distance.ts'
import { asked } from './compare.ts'

const limiters = ['fastify-rate-limit', 'flexible'] as const
const names: CandidateName[] = ['latchkey', 'bare', ...limiters, 'obvious', 'caching']
/** At the lowest rate, all of them are in the cache after the load that comes before a window. */
const keys = 250
const delaysMs = [0, 1, 5]
const ratesPerS = [500, 2000]
/** Of the most that a candidate answers. */
const shareOfMost = 0.7
/** Of the most. Above it a queue grows, and a latency says only for how long. */
const shareMax = 0.9
/**
 * How long `caching` keeps a key. The keys read before a window expire in it, each once, as they
 * would in real use. In a shorter window, none would.
 */
const secondsMin = 5
/** Nine tables of such windows take half an hour. */
const roundsMax = 4
/** As long as the slowest candidate needs to compile its hot code. */
const warmUpS = 3
const connections = 256

/** What a request may add to `bare`, by the distance of Redis. */
const distanceMax = 1.1

export async function steady(rig: Rig): Promise<Outcome> {
  const database = await rig.database('steady', keys)
  const found = []
  for (const delayMs of delaysMs) found.push(await atDistance(rig, database, delayMs))
  return {
    name: 'steady',
    title: 'At a steady rate',
    tables: found.flatMap(({ tables }) => tables),
    targets: found.flatMap(({ targets }) => targets),
    notes: [
      'Each request is due at its own time, and its latency counts from then. The load looks every millisecond for what is due; `bare` shows what that adds.',
      'A network is a process that holds each reply of Redis and Postgres back. Its timers are late by up to a millisecond, so the distance is a measured one: the median PING through it.',
      ...found.flatMap(({ notes }) => notes),
    ],
  }
}

async function atDistance(rig: Rig, database: Database, delayMs: number) {
  const servers = { url: database.url, redisUrl: rig.redis.url }
  if (delayMs > 0) {
    const [postgres, redis] = [await awayFrom(database.url, delayMs), await awayFrom(rig.redis.url, delayMs)]
    for (const { stop } of [postgres, redis]) rig.stopWithCandidates(stop)
    Object.assign(servers, { url: postgres.url, redisUrl: redis.url })
  }
  const distanceMs = await roundTripMs(servers.redisUrl)
  const { tokensFile } = database
  const subjects: (Subject & { mostPerS: number })[] = []
  for (const name of names) {
    const one = await rig.start(name, servers)
    const tokens = () => ({ first: 0, count: keys })
    const shot = { url: `${one.url}/v1/verify`, tokensFile, ...tokens(), connections }
    checked(name, await rig.load.shoot({ ...shot, seconds: warmUpS }))
    const { requests, seconds } = checked(name, await rig.load.shoot({ ...shot, seconds: rig.seconds }))
    const mostPerS = requests / seconds
    rig.say(`${name}: at most ${Math.round(mostPerS)} req/s`)
    subjects.push({ name, url: one.url, processes: [one], tokensFile, tokens, mostPerS })
  }
  await assertSameAnswer(await Promise.all(subjects.map(asked)))

  const where = delayMs === 0 ? 'Redis and Postgres on this machine' : `Redis and Postgres ${delayMs} ms away`
  const tables: Table[] = []
  const targets: Target[] = []
  const notes: string[] = []
  for (const perS of [...ratesPerS, null]) {
    const rate = perS === null ? `${shareOfMost * 100} % of the most` : `${perS} requests/s`
    const title = `${where}: ${rate}`
    const able: Subject[] = []
    for (const { mostPerS, ...subject } of subjects) {
      const ratePerS = perS ?? shareOfMost * mostPerS
      if (ratePerS <= shareMax * mostPerS) able.push({ ...subject, load: steadyLoad(ratePerS) })
      else
        notes.push(
          `${title}: without \`${subject.name}\`, which answers ${Math.round(mostPerS)} requests/s at most.`,
        )
    }
    const [rounds, seconds] = [Math.min(rig.rounds, roundsMax), Math.max(rig.seconds, secondsMin)]
    const results = await inRounds(rig, able, { rounds, seconds })
    tables.push({
      title,
      about: `${keys} keys in turn, ${rounds} rounds with windows of ${seconds} s. A round trip to Redis took ${distanceMs.toFixed(2)} ms.`,
      results,
      ratios: able.flatMap(({ name }) => (name === 'latchkey' ? [] : [cpuRatio(results, name, 'latchkey')])),
    })
    if (delayMs > 0)
      targets.push(
        atMost(
          `${title}: median latency above that of bare, by the round trip to Redis`,
          perRound(results, 'p50Ms', ['latchkey', 'bare'], (ours, floor) => (ours - floor) / distanceMs),
          distanceMax,
          '×',
        ),
      )
    for (const limiter of limiters)
      targets.push(
        atMost(`${title}: p99, by that of ${limiter}`, ratio(results, 'p99Ms', 'latchkey', limiter), 1, '×'),
      )
  }
  await rig.stopCandidates()
  return { tables, targets, notes }
}
