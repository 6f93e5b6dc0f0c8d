/**
 * Random runs that can be repeated. A failure names a seed and a path; with FUZZ_SEED and FUZZ_PATH
 * set to them, that one counterexample runs again, shrunk. FUZZ_SEED alone repeats a whole run, as
 * far as the other lanes and the clock allow.
 */
import { randomInt } from 'node:crypto'
import fc from 'fast-check'
import type { Test } from 'tap'

const path = process.env.FUZZ_PATH || undefined
/** Of the first part; each further part has the next one. */
let seed = process.env.FUZZ_SEED ? Number(process.env.FUZZ_SEED) : randomInt(2 ** 31)

/**
 * A part takes seconds, on a busy machine minutes. Shrinking takes longer where servers answer;
 * what is found by then is small enough.
 */
const partMaxMs = 300_000

interface Parts {
  /** How many at once. */
  lanes: number
  /** Values in one part. */
  numRuns: number
  /** Whether another part is wanted. */
  more: () => boolean
}

/**
 * Tries values in parts, each under a seed of its own, until no more are wanted. The first failure
 * ends the other lanes, so that nothing disturbs its shrinking. Says whether all that was wanted
 * was tried and held.
 */
export async function holdsInLanes<T>(
  t: Test,
  values: fc.Arbitrary<T>,
  holds: (value: T, lane: number) => Promise<void>,
  { lanes, numRuns, more }: Parts,
): Promise<boolean> {
  t.comment(`FUZZ_SEED=${seed}`)
  let failed: number | null = null
  async function check(lane: number, parameters: fc.Parameters<[T]>) {
    const property = fc.asyncProperty(values, async (value) => {
      if (failed !== null && failed !== lane) return
      await holds(value, lane).catch((error: Error) => {
        if (failed !== null && failed !== lane) return
        // At once, because what happens rarely may not happen again while it is shrunk.
        if (failed === null) t.comment(`found, not yet shrunk: ${printable(error.message)}`)
        failed = lane
        throw error
      })
    })
    report(t, await fc.check(property, { numRuns, ...parameters }))
  }
  const limits = { interruptAfterTimeLimit: partMaxMs, markInterruptAsFailure: true }
  if (path !== undefined) await check(0, { seed, path })
  else {
    await Promise.all(
      Array.from({ length: lanes }, async (_, lane) => {
        while (failed === null && more()) await check(lane, { seed: seed++ | 0, ...limits })
      }),
    )
  }
  return failed === null && path === undefined
}

function report<T>(t: Test, details: fc.RunDetails<T>) {
  if (!details.failed) return
  const { seed, counterexamplePath, counterexample, errorInstance } = details
  if (counterexamplePath === null) return t.fail(`no end in ${partMaxMs} ms: FUZZ_SEED=${seed}`)
  t.comment(`counterexample: ${printable(fc.stringify(counterexample))}`)
  t.comment(printable(String((errorInstance as Error).stack)))
  t.fail(`a counterexample; repeat it with FUZZ_SEED=${seed} FUZZ_PATH=${counterexamplePath}`)
}

/** Whatever the bytes were: what is reported must not break the report. */
const printable = (text: string) =>
  text
    .slice(0, 20_000)
    .replace(/[^\n -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

/** How often each outcome was seen, and which of those that must be seen were not. */
export function tallyOf(mustHappen: readonly string[]) {
  const times = new Map<string, number>()
  const tally = {
    total: 0,
    add(what: string) {
      tally.total++
      times.set(what, tally.count(what) + 1)
    },
    count: (what: string) => times.get(what) ?? 0,
    missing: () => mustHappen.filter((what) => !times.has(what)),
    toString: () => {
      const often = [...times].sort(([, a], [, b]) => b - a)
      return often.map(([what, count]) => `${what} ${count}×`).join(', ')
    },
  }
  return tally
}
