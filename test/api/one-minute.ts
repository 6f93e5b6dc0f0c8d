/** Counting tests must not fall over a minute boundary: they are asked again in the next minute, with a key that is fresh. */
import type { Answer } from '../instance.ts'

const attemptsMax = 3

export const resetOf = ({ headers }: Answer) => Number(headers.get('x-ratelimit-reset'))

/** Work makes its own keys, and answers with all answers it got: they are of one minute when they name one reset. */
export async function inOneMinute<T extends { answers: Answer[] }>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const result = await work()
    const resets = new Set(result.answers.map(resetOf))
    if (resets.size === 1) return result
    if (attempt === attemptsMax) throw new Error(`one minute with several resets: ${[...resets]}`)
  }
}
