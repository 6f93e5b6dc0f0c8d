/**
 * Tests that count must not run across the turn of a minute: `work` runs again in the next one,
 * with new keys of its own.
 */
import type { Answer } from '../instance.ts'

const attemptsMax = 3

export const resetOf = ({ headers }: Answer) => Number(headers.get('x-ratelimit-reset'))

/** Responses with the same reset are of one minute. `work` returns all it has received. */
export async function inOneMinute<T extends { answers: Answer[] }>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const result = await work()
    const resets = new Set(result.answers.map(resetOf))
    if (resets.size === 1) return result
    if (attempt === attemptsMax) throw new Error(`one minute with several resets: ${[...resets]}`)
  }
}
