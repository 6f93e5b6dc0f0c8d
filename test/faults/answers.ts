// What answers say about counting, and what is wrong with them.
import type { Sample } from '../load.ts'
import type { Fleet } from './fleet.ts'

export interface Counted {
  status: number
  remaining: number
  limit: number
  /** When its minute ends, Unix seconds. */
  resetS: number
  /** Null without one. */
  retryAfterS: number | null
}

/** With when (performance.now()) and to which instance it was sent. */
export type Answered = Counted & Pick<Sample, 'target' | 'sentMs' | 'tookMs'>

/** What an answer says about its count. */
export function countedOf({
  status,
  headers,
}: {
  status: number
  headers: Headers | Sample['headers']
}): Counted {
  const get = (name: string) => (headers instanceof Headers ? headers.get(name) : (headers[name] ?? null))
  const number = (name: string) => (/^\d+$/.test(String(get(name))) ? Number(get(name)) : Number.NaN)
  return {
    status,
    limit: number('x-ratelimit-limit'),
    remaining: number('x-ratelimit-remaining'),
    resetS: number('x-ratelimit-reset'),
    retryAfterS: get('retry-after') === null ? null : number('retry-after'),
  }
}

export const answeredOf = (samples: readonly Sample[]): (Sample & Counted)[] =>
  samples.map((sample) => ({ ...sample, ...countedOf(sample) }))

export const answeredMs = ({ sentMs, tookMs }: Pick<Sample, 'sentMs' | 'tookMs'>): number => sentMs + tookMs

/** How often each of them occurs; empty when all is well. */
export function tally(faults: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const fault of faults) counts[fault] = (counts[fault] ?? 0) + 1
  return counts
}

/**
 * What is wrong with answers to a usable key with one of these limits, as far as status and headers
 * tell.
 */
export const wrongAnswers = (answers: readonly Counted[], ...limits: number[]): string[] =>
  answers.flatMap((answer) => wrongAnswer(answer, limits) ?? [])

function wrongAnswer(
  { status, limit, remaining, resetS, retryAfterS }: Counted,
  limits: number[],
): string | null {
  if (status !== 200 && status !== 429) return `answered ${status}`
  if (!limits.includes(limit)) return `${status} with a limit of ${limit}`
  if (!(remaining >= 0 && remaining < limit)) return `${status} with ${remaining} left of ${limit}`
  // The answer may be some time old.
  if (!(resetS % 60 === 0 && Math.abs(resetS - Date.now() / 1000) <= 180))
    return `${status} with a reset at ${resetS}`
  if (status === 200) return retryAfterS === null ? null : '200 with a Retry-After'
  if (remaining !== 0) return `429 with ${remaining} left`
  const isRest = retryAfterS !== null && retryAfterS >= 1 && retryAfterS <= 60
  return isRest ? null : `429 with Retry-After ${retryAfterS}`
}

export const admitted = (answers: readonly Counted[]): number =>
  answers.filter(({ status }) => status === 200).length

/**
 * What is wrong with the count of one key in one minute: each number must be given once, from the
 * first to the last.
 */
export function countFault(
  answers: readonly Counted[],
  limit: number,
  inRedis: number | null,
): string | null {
  const expected = Math.min(limit, answers.length)
  if (admitted(answers) !== expected)
    return `${admitted(answers)} of ${answers.length} admitted, ${expected} expected`
  const left = answers
    .flatMap(({ status, remaining }) => (status === 200 ? remaining : []))
    .sort((a, b) => b - a)
  const wrong = left.findIndex((remaining, i) => remaining !== limit - 1 - i)
  if (wrong >= 0) return `${left[wrong]} left where ${limit - 1 - wrong} were expected`
  return inRedis === answers.length ? null : `${answers.length} sent and ${inRedis} counted in Redis`
}

/**
 * The minutes, one string each, in which the answers to a key were not counted exactly: once each,
 * in one common count.
 */
export async function inexact(
  { countIn }: Pick<Fleet, 'countIn'>,
  { id }: { id: string },
  answers: readonly Counted[],
  limit: number,
): Promise<string[]> {
  const faults: string[] = []
  for (const [resetS, ofMinute] of groupBy(answers, ({ resetS }) => resetS)) {
    const fault = countFault(ofMinute, limit, await countIn(id, resetS))
    if (fault !== null) faults.push(`limit ${limit}: ${fault}`)
  }
  return faults
}

function groupBy<T, K>(all: readonly T[], nameOf: (one: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>()
  for (const one of all) {
    const group = groups.get(nameOf(one))
    if (group) group.push(one)
    else groups.set(nameOf(one), [one])
  }
  return groups
}

/**
 * Where an instance went back in its count of one key within a minute: admitted more than the
 * limit, gave a number twice, or gave a request a lower one than an earlier request had been
 * answered with. Its own count goes on whatever becomes of Redis.
 */
export function stepsBack(answers: readonly Answered[], limit: number): string[] {
  const minutes = groupBy(answers, ({ target, resetS }) => `${target} ${resetS}`)
  return [...minutes.values()].flatMap((minute) => {
    const faults: string[] = []
    if (admitted(minute) > limit) faults.push(`${admitted(minute)} admitted of ${limit}`)
    const numberOf = ({ status, remaining }: Answered) => (status === 200 ? limit - remaining : limit + 1)
    const byAnswer = [...minute].sort((a, b) => answeredMs(a) - answeredMs(b))
    const given = new Set<number>()
    let next = 0
    let highest = 0
    for (const answer of [...minute].sort((a, b) => a.sentMs - b.sentMs)) {
      for (; answeredMs(byAnswer[next]!) < answer.sentMs; next++)
        highest = Math.max(highest, numberOf(byAnswer[next]!))
      if (answer.status !== 200) continue
      const number = numberOf(answer)
      if (number <= highest) faults.push('a number below one that an earlier request had')
      if (given.has(number)) faults.push('a number twice')
      given.add(number)
    }
    return faults
  })
}
