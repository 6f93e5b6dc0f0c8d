/**
 * Runs that can be had again. A failure names a seed and a path; with FUZZ_SEED and FUZZ_PATH set to them, that one
 * counterexample runs again, shrunk. FUZZ_SEED alone repeats a whole run, as far as the other lanes and the clock let it.
 */
import { randomInt } from 'node:crypto'
import fc from 'fast-check'
import type { Test } from 'tap'

const path = process.env.FUZZ_PATH || undefined

/** Of the whole run; each of its parts has the next one. */
export const seed = process.env.FUZZ_SEED ? Number(process.env.FUZZ_SEED) : randomInt(2 ** 31)

/** A part takes seconds. Shrinking what talks to servers takes longer; what is found by then is small enough. */
const partMaxMs = 60_000

interface Parts {
  /** How many at once. */
  lanes: number
  /** Values in one part. */
  numRuns: number
  /** Whether another part is wanted. */
  more: () => boolean
}

/**
 * Tries values in parts, each under a seed of its own, until no more is wanted. The first that does not hold ends the other
 * lanes, so that it is shrunk in peace. Answers whether all that was wanted was tried, and held.
 */
export async function holdsInLanes<T>(
  t: Test,
  values: fc.Arbitrary<T>,
  holds: (value: T, lane: number) => Promise<void>,
  { lanes, numRuns, more }: Parts,
): Promise<boolean> {
  t.comment(`FUZZ_SEED=${seed}`)
  let failed: number | null = null
  const propertyOf = (lane: number) =>
    fc.asyncProperty(values, async (value) => {
      if (failed !== null && failed !== lane) return
      try {
        await holds(value, lane)
      } catch (error) {
        // Of lanes that fail at once the first is told.
        if (failed !== null && failed !== lane) return
        // At once: what happens rarely may not happen again while it is shrunk.
        if (failed === null) t.comment(`found, not yet shrunk: ${plain((error as Error).message)}`)
        failed = lane
        throw error
      }
    })
  let next = seed
  const work = async (lane: number) => {
    const property = propertyOf(lane)
    while (failed === null && more()) {
      const limits = { interruptAfterTimeLimit: partMaxMs, markInterruptAsFailure: true }
      tell(t, await fc.check(property, { seed: next++ | 0, numRuns, ...limits }))
    }
  }
  if (path !== undefined) tell(t, await fc.check(propertyOf(0), { seed, path, numRuns }))
  else await Promise.all(Array.from({ length: lanes }, (_, lane) => work(lane)))
  return failed === null && path === undefined
}

function tell<T>(
  t: Test,
  { failed, seed, counterexamplePath, counterexample, errorInstance }: fc.RunDetails<T>,
) {
  if (!failed) return
  if (counterexamplePath === null) {
    t.fail(`no end in ${partMaxMs} ms: FUZZ_SEED=${seed}`)
    return
  }
  t.comment(`counterexample: ${plain(fc.stringify(counterexample))}`)
  t.comment(plain(String((errorInstance as Error).stack)))
  t.fail(`a counterexample: again by FUZZ_SEED=${seed} FUZZ_PATH=${counterexamplePath}`)
}

/** Printable, whatever the bytes were: a report must not be broken by what it reports. */
const plain = (text: string) =>
  text
    .slice(0, 20_000)
    .replace(/[^\n -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
