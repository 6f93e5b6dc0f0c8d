/** Latchkey next to its floor and its peers, with one key or with many. */
import { open } from 'node:fs/promises'
import { type Before, databaseBefore, startBefore } from '../before.ts'
import { connections, type Subject } from '../measure.ts'
import { atLeast, atMost, type Outcome, type Target } from '../outcome.ts'
import { cpuRatio, perRound, type Ratio, ratio } from '../ratios.ts'
import type { Database, Rig } from '../rig.ts'
import { inLaunches, type Result } from '../rounds.ts'
import { type Asked, assertSameAnswer } from '../same-answer.ts'
import type { Candidate, CandidateName } from '../servers/candidate.ts'

const peers = ['fastify-rate-limit', 'flexible', 'obvious', 'caching'] as const
const names: CandidateName[] = ['latchkey', 'bare', 'bare-tuned', ...peers]

const legend = [
  '`latchkey`: the service as `npm start` starts it, with its defaults.',
  '`bare`: Fastify sending the same headers and bytes without looking at the request. The floor.',
  '`bare-tuned`: `bare` in a process set up like Latchkey’s (src/process/fast-ticks.ts, v8-options.ts, `npm start`), with one write for each response (src/http/one-write.ts).',
  '`fastify-rate-limit`: Fastify with @fastify/rate-limit, counting in Redis. It does not authenticate.',
  '`flexible`: Fastify with rate-limiter-flexible, counting in Redis. It does not authenticate.',
  '`obvious`: one SELECT by the key’s HMAC and one script call for each request.',
  '`caching`: `obvious` with an LRU cache of 200 000 keys for 5 s. A revoked key works until its entry expires.',
]

type Compared = Pick<Outcome, 'notes'> & { results: Result[]; ratios: Ratio[] }

export async function compare(rig: Rig, purpose: string, keys: number): Promise<Compared> {
  const database = await rig.database(purpose, keys)
  const before = await databaseBefore(rig, purpose, keys)
  const differences = new Map<string, string>()
  const results = await inLaunches(rig, async () => {
    const subjects = await start(rig, database, before)
    for (const one of await assertSameAnswer(await Promise.all(subjects.map(asked)))) differences.set(...one)
    return subjects
  })
  const others = [...differences].map(
    ([name, difference]) => `\`${name}\`: Latchkey from ${rig.before}. ${difference}`,
  )
  return { results, ratios: ratios(results), notes: [aboveBare(results), ...legend, ...others] }
}

async function start(rig: Rig, database: Database, before: Before | null): Promise<Subject[]> {
  const subjects: Subject[] = []
  const tokens = () => ({ first: 0, count: database.count })
  const add = (one: Candidate, { tokensFile }: Database) =>
    subjects.push({ name: one.name, url: one.url, processes: [one], tokensFile, tokens })
  for (const name of names) {
    add(await rig.start(name, database), database)
    if (name === 'latchkey' && before !== null) add(await startBefore(rig, before), before)
  }
  return subjects
}

export const asked = async ({ name, url, tokensFile }: Subject): Promise<Asked> => ({
  name,
  url,
  token: await firstLine(tokensFile),
  otherHeaders: name === 'latchkey-before',
})

const ratios = (results: Result[]): Ratio[] => [
  ...(results.some(({ name }) => name === 'latchkey-before')
    ? [cpuRatio(results, 'latchkey', 'latchkey-before')]
    : []),
  cpuRatio(results, 'latchkey', 'bare'),
  cpuRatio(results, 'latchkey', 'bare-tuned'),
  ...peers.map((peer) => cpuRatio(results, peer, 'latchkey')),
]

/** What each candidate adds to the floor, which is its own doing. */
function aboveBare(results: Result[]): string {
  const parts = results
    .filter(({ name }) => name !== 'bare')
    .map(({ name }) => {
      const { median } = perRound(results, 'cpuUs', [name, 'bare'], (us, floorUs) => us - floorUs)
      return `\`${name}\` ${median.toFixed(1)} µs`
    })
  return `CPU per request above that of \`bare\`, median of the rounds: ${parts.join(', ')}.`
}

/**
 * `bareShare`: at least this much of our CPU time per request is `bare`'s. `limiters`: a limiter
 * takes at least this many times our CPU time.
 */
export function costTargets(
  results: Result[],
  { bareShare, limiters }: { bareShare: number; limiters: number },
): Target[] {
  const times = (name: string, limit: number) =>
    atLeast(
      `CPU per request of ${name}, by that of latchkey`,
      ratio(results, 'cpuUs', name, 'latchkey'),
      limit,
      '×',
    )
  return [
    atMost(
      'CPU per request, by that of bare',
      ratio(results, 'cpuUs', 'latchkey', 'bare'),
      1 / bareShare,
      '×',
    ),
    times('fastify-rate-limit', limiters),
    times('flexible', limiters),
    times('obvious', 4.5),
  ]
}

export async function firstLine(path: string): Promise<string> {
  const file = await open(path)
  try {
    for await (const line of file.readLines({ autoClose: false })) return line
  } finally {
    await file.close()
  }
  throw new Error(`${path} is empty`)
}

export const howMany = `${connections} connections`
