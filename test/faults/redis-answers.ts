/** What answers have in common whatever becomes of Redis, and what is wrong with those that have not. */
import type { Sample } from '../load.ts'

const header = ({ headers }: Sample, name: string) => String(headers[name])
export const resetOf = (sample: Sample): number => Number(header(sample, 'x-ratelimit-reset'))
export const answeredMs = ({ sentMs, tookMs }: Sample): number => sentMs + tookMs

/** Each fault once, with how often it was found. */
export function tally(faults: readonly string[]): string[] {
  const counts = new Map<string, number>()
  for (const fault of faults) counts.set(fault, (counts.get(fault) ?? 0) + 1)
  return [...counts].map(([fault, count]) => `${count} × ${fault}`)
}

/** Faults of single answers on a key with this limit: a status or a header that must not be. */
export const faultsOf = (samples: readonly Sample[], limit: number): string[] =>
  samples.flatMap((sample) => faultOf(sample, limit) ?? [])

function faultOf(sample: Sample, limit: number): string | null {
  const { status, fault, body } = sample
  if (status === 0) return `no answer: ${fault}`
  // Not the whole body, which has an id of its own each time.
  if (status !== 200 && status !== 429) return `${status} ${/"code":"[a-z_]*"/.exec(body)?.[0]}`
  if (header(sample, 'x-ratelimit-limit') !== String(limit)) return 'x-ratelimit-limit is not the limit'
  const remaining = header(sample, 'x-ratelimit-remaining')
  if (!/^[0-9]+$/.test(remaining) || Number(remaining) >= limit) return `x-ratelimit-remaining ${remaining}`
  const leftS = resetOf(sample) - Date.now() / 1000
  // The answer may have come some seconds ago.
  if (resetOf(sample) % 60 !== 0 || leftS > 61 || leftS < -60)
    return 'x-ratelimit-reset is not the next minute'
  if (status === 200) return null
  if (remaining !== '0') return '429 with calls left'
  const retryAfter = header(sample, 'retry-after')
  return /^[1-9][0-9]?$/.test(retryAfter) && Number(retryAfter) <= 60 ? null : `retry-after ${retryAfter}`
}

/** The samples of each instance and window. Of one key. */
export function byInstanceAndWindow(samples: readonly Sample[]): Sample[][] {
  const groups = new Map<string, Sample[]>()
  for (const sample of samples) {
    const name = `${sample.target} ${header(sample, 'x-ratelimit-reset')}`
    const group = groups.get(name)
    if (group) group.push(sample)
    else groups.set(name, [sample])
  }
  return [...groups.values()]
}

export const admittedOf = (samples: readonly Sample[]): number =>
  samples.filter(({ status }) => status === 200).length

/**
 * Where an instance went back in its count of one key within a window: admitted more than the limit, gave a number twice, or
 * gave a request a lower one than an earlier request had been answered with. So a count goes on from the last one seen.
 */
export function stepsBack(samples: readonly Sample[], limit: number): string[] {
  return byInstanceAndWindow(samples).flatMap((group) => {
    const faults: string[] = []
    const admitted = admittedOf(group)
    if (admitted > limit) faults.push(`${admitted} admitted of ${limit}`)
    const numberOf = (sample: Sample) =>
      sample.status === 200 ? limit - Number(header(sample, 'x-ratelimit-remaining')) : limit + 1
    const answered = [...group].sort((a, b) => answeredMs(a) - answeredMs(b))
    const given = new Set<number>()
    let next = 0
    let highest = 0
    for (const sample of [...group].sort((a, b) => a.sentMs - b.sentMs)) {
      while (answeredMs(answered[next]!) < sample.sentMs) {
        highest = Math.max(highest, numberOf(answered[next]!))
        next++
      }
      if (sample.status !== 200) continue
      const number = numberOf(sample)
      if (number <= highest) faults.push(`a number below one that an earlier request had`)
      if (given.has(number)) faults.push('a number twice')
      given.add(number)
    }
    return faults
  })
}
