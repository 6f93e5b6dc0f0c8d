/** Latchkey beside its floor and its peers, by one key or by many. */
import { open } from 'node:fs/promises'
import { connections, type Subject } from '../measure.ts'
import { atLeast, atMost, resultOf, type Target } from '../outcome.ts'
import type { Rig } from '../rig.ts'
import { inTurns, type Result } from '../rounds.ts'
import { assertSameAnswer } from '../same-answer.ts'
import type { Candidate, CandidateName } from '../servers/candidate.ts'

const names: CandidateName[] = ['latchkey', 'bare', 'fastify-rate-limit', 'flexible', 'obvious']

export const legend = [
  '`latchkey`: the service as it is started with `latchkey serve`, with its defaults.',
  '`bare`: Fastify answering the same headers and bytes, without looking at who asks: the floor.',
  '`fastify-rate-limit`: Fastify with @fastify/rate-limit, counting in Redis. It authenticates nobody.',
  '`flexible`: Fastify with rate-limiter-flexible, counting in Redis. It authenticates nobody.',
  '`obvious`: one SELECT by the key’s HMAC and one script call for each request.',
]

export async function compare(rig: Rig, purpose: string, keys: number): Promise<Result[]> {
  const database = await rig.database(purpose, keys)
  const candidates: Candidate[] = []
  for (const name of names) candidates.push(await rig.start(name, database))
  await assertSameAnswer(candidates, await firstLine(database.tokensFile))
  const subjects = candidates.map(
    (candidate): Subject => ({
      name: candidate.name,
      url: candidate.url,
      processes: [candidate],
      tokensFile: database.tokensFile,
      tokens: () => ({ first: 0, count: keys }),
    }),
  )
  const results = await inTurns(rig, subjects)
  await rig.stopCandidates()
  return results
}

/** What each adds to the floor: the part of its time that is its own doing. */
export function aboveBare(results: Result[]): string {
  const floorUs = resultOf(results, 'bare').median.cpuUs
  const parts = results
    .filter(({ name }) => name !== 'bare')
    .map(({ name, median }) => `\`${name}\` ${(median.cpuUs - floorUs).toFixed(1)} µs`)
  return `CPU per request above that of \`bare\`: ${parts.join(', ')}.`
}

/** `bareShare`: how much of our CPU time per request may be `bare`'s at least. */
export function costTargets(results: Result[], bareShare: number): Target[] {
  const cpuUs = (name: string) => resultOf(results, name).median.cpuUs
  const times = (name: string, limit: number) =>
    atLeast(`CPU per request of ${name}, against latchkey`, cpuUs(name) / cpuUs('latchkey'), limit, '×')
  return [
    atMost(
      `CPU per request, at most bare / ${bareShare.toFixed(2)}`,
      cpuUs('latchkey'),
      cpuUs('bare') / bareShare,
      'µs',
    ),
    times('fastify-rate-limit', 1.5),
    times('flexible', 1.5),
    times('obvious', 4.5),
  ]
}

async function firstLine(path: string): Promise<string> {
  const file = await open(path)
  for await (const line of file.readLines()) return line
  throw new Error(`${path} is empty`)
}

export const howMany = `${connections} connections`
