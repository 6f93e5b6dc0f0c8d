// Answers by the minute they were counted in, and what an exact count of them looks like.
import type { Test } from 'tap'

export interface Counted {
  status: number
  remaining: number
  limit: number
  resetS: number
  /** Null without one. */
  retryAfterS: number | null
}

type HeadersOf = { get(name: string): string | null } | Record<string, string | string[] | undefined>

/** What an answer says of its count. */
export function countedOf({ status, headers }: { status: number; headers: HeadersOf }): Counted {
  const get = (name: string) =>
    'get' in headers && typeof headers.get === 'function'
      ? headers.get(name)
      : ((headers as Record<string, string | undefined>)[name] ?? null)
  const number = (name: string) => (/^\d+$/.test(get(name) ?? '') ? Number(get(name)) : Number.NaN)
  return {
    status,
    limit: number('x-ratelimit-limit'),
    remaining: number('x-ratelimit-remaining'),
    resetS: number('x-ratelimit-reset'),
    retryAfterS: get('retry-after') === null ? null : number('retry-after'),
  }
}

/** What is wrong with an answer to a request with a usable key, as far as its status and headers go; null when nothing is. */
export function faultOf(
  { status, limit, remaining, resetS, retryAfterS }: Counted,
  limits: number[],
): string | null {
  if (status !== 200 && status !== 429) return `answered ${status}`
  if (!limits.includes(limit)) return `${status} with a limit of ${limit}`
  if (!(remaining >= 0 && remaining < limit)) return `${status} with ${remaining} left of ${limit}`
  if (!(resetS % 60 === 0 && Math.abs(resetS - Date.now() / 1000) <= 180))
    return `${status} with a reset at ${resetS}`
  if (status === 200) return retryAfterS === null ? null : '200 with a Retry-After'
  if (remaining !== 0) return `429 with ${remaining} left`
  return retryAfterS !== null && retryAfterS >= 1 && retryAfterS <= 60
    ? null
    : `429 with Retry-After ${retryAfterS}`
}

/** How many of each fault; empty when all is well. */
export function faultsOf(answers: readonly Counted[], limits: number[]): Record<string, number> {
  const faults: Record<string, number> = {}
  for (const answer of answers) {
    const fault = faultOf(answer, limits)
    if (fault !== null) faults[fault] = (faults[fault] ?? 0) + 1
  }
  return faults
}

/** By the reset that each names, in order. */
export function byWindow(answers: readonly Counted[]): [resetS: number, answers: Counted[]][] {
  const windows = new Map<number, Counted[]>()
  for (const answer of answers) {
    const window = windows.get(answer.resetS) ?? []
    windows.set(answer.resetS, window)
    window.push(answer)
  }
  return [...windows].sort(([a], [b]) => a - b)
}

/** What is wrong with the count of one key in one minute: each number must be given once, from the first to the last. */
export function countFault(
  answers: readonly Counted[],
  limit: number,
  inRedis: number | null,
): string | null {
  const admitted = answers.filter(({ status }) => status === 200)
  const expected = Math.min(limit, answers.length)
  if (admitted.length !== expected)
    return `${admitted.length} of ${answers.length} admitted, ${expected} expected`
  const left = admitted.map(({ remaining }) => remaining).sort((a, b) => b - a)
  const wrong = left.findIndex((remaining, i) => remaining !== limit - 1 - i)
  if (wrong >= 0) return `${left[wrong]} left told where ${limit - 1 - wrong} were`
  if (inRedis !== answers.length) return `${answers.length} sent and ${inRedis} counted in Redis`
  return null
}

/** Asserts that every answer was counted exactly: once, in one common count of its minute. Returns how many minutes were not. */
export async function expectExact(
  t: Test,
  { id, rate_limit_rpm: limit }: { id: string; rate_limit_rpm: number },
  answers: readonly Counted[],
  countIn: (keyId: string, resetS: number) => Promise<number | null>,
  what = `${answers.length} requests at a limit of ${limit} are counted exactly`,
): Promise<number> {
  const faults: string[] = []
  for (const [resetS, window] of byWindow(answers)) {
    const fault = countFault(window, limit, await countIn(id, resetS))
    if (fault !== null) faults.push(fault)
  }
  t.strictSame(faults, [], what)
  return faults.length
}
