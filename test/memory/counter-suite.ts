/** What every counter keeps, whatever it counts in. Run by the test file of each implementation. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'
import type { Test } from 'tap'
import { newId } from '../../src/rules/id.ts'
import type { Counter, CountReply } from '../../src/stores.ts'

export interface Counted {
  number: number
  version: number
  turn: CountReply
}

/** One hit, with its answer. */
export function hit(counter: Counter, keyId: string): Promise<Counted> {
  return new Promise((resolve, reject) => {
    const taken = counter.hit(keyId, (number, version, turn) => resolve({ number, version, turn }))
    if (!taken) reject(new Error('the counter is full'))
  })
}

export const hits = (counter: Counter, keyId: string, count: number): Promise<Counted[]> =>
  Promise.all(Array.from({ length: count }, () => hit(counter, keyId)))

export const numbersOf = (counted: Counted[]) => counted.map(({ number }) => number)
export const upTo = (n: number) => Array.from({ length: n }, (_, i) => i + 1)
export const ascending = (a: number, b: number) => a - b

/**
 * Does the work again where a minute ended in it: its numbers would begin anew halfway. `minuteNow`: the counting clock's
 * minute, where the work begins with something that is kept by it.
 */
export async function inOneMinute(
  work: () => Promise<Counted[]>,
  minuteNow?: () => Promise<number>,
): Promise<Counted[]> {
  for (let tries = 1; ; tries++) {
    const begunIn = await minuteNow?.()
    const counted = await work()
    const minutes = new Set(counted.map(({ turn }) => Math.floor(turn.nowMs / 60_000)))
    if (begunIn !== undefined) minutes.add(begunIn)
    if (minutes.size <= 1 || tries === 3) return counted
  }
}

/** `open`: counters on one and the same store, as many as asked for. */
export function counterSuite(t: Test, open: (t: Test, count: number) => Promise<Counter[]>): void {
  const openOne = async (t: Test) => (await open(t, 1))[0]!

  t.test('the hits on a key are numbered from 1', async (t) => {
    const counter = await openOne(t)
    const counted = await inOneMinute(async () => {
      const keyId = newId('apk_')
      return [await hit(counter, keyId), await hit(counter, keyId), await hit(counter, keyId)]
    })
    t.strictSame(numbersOf(counted), [1, 2, 3])
  })

  t.test('each number is given once under any interleaving of keys and turns', async (t) => {
    const counter = await openOne(t)
    const steps = fc.array(fc.record({ key: fc.nat(4), turnEnds: fc.boolean() }), { maxLength: 60 })
    await fc.assert(
      fc.asyncProperty(steps, async (steps) => {
        const answers = new Map<number, number>()
        const numbers: number[][] = []
        await inOneMinute(async () => {
          const keyIds = upTo(5).map(() => newId('apk_'))
          keyIds.forEach((_, key) => {
            numbers[key] = []
          })
          answers.clear()
          const waiting: Promise<Counted>[] = []
          for (const [i, { key, turnEnds }] of steps.entries()) {
            const answered = new Promise<Counted>((resolve) => {
              counter.hit(keyIds[key]!, (number, version, turn) => {
                answers.set(i, (answers.get(i) ?? 0) + 1)
                numbers[key]!.push(number)
                resolve({ number, version, turn })
              })
            })
            waiting.push(answered)
            if (turnEnds) await nextTurn()
          }
          return Promise.all(waiting)
        })
        const eachOnce = numbers.every((given) => isUpTo(given.sort(ascending)))
        return eachOnce && answers.size === steps.length && [...answers.values()].every((n) => n === 1)
      }),
      { numRuns: 60 },
    )
    t.pass('for every interleaving tried')
  })

  t.test('a turn with hits on many keys numbers each key by itself', async (t) => {
    const counter = await openOne(t)
    const counted = await inOneMinute(async () => {
      const keyIds = upTo(2500).map(() => newId('apk_'))
      return Promise.all([...keyIds, ...keyIds].map((keyId) => hit(counter, keyId)))
    })
    const [first, second] = [numbersOf(counted.slice(0, 2500)), numbersOf(counted.slice(2500))]
    const wrong = first.filter(
      (number, key) => ![number, second[key]!].sort(ascending).every((n, i) => n === i + 1),
    )
    t.equal(first.length, 2500)
    t.strictSame(wrong, [], 'of its two hits one is the first and one the second')
  })

  t.test('an answer carries the counting clock and the moment it came', async (t) => {
    const counter = await openOne(t)
    const beforeMs = performance.now()
    const { turn } = await hit(counter, newId('apk_'))
    t.ok(turn.monoMs >= beforeMs && turn.monoMs <= performance.now())
    t.ok(Number.isInteger(turn.nowMs))
    t.equal(turn.shared, counter.mode === 'shared')
  })

  t.test('the version of a key never raised is 0', async (t) => {
    t.equal((await hit(await openOne(t), newId('apk_'))).version, 0)
  })

  t.test('a hit shows the version raised before it, and of its own key only', async (t) => {
    const counter = await openOne(t)
    const [raised, other] = [newId('apk_'), newId('apk_')]
    t.equal(await counter.raise([{ keyId: raised, version: 7 }]), true)
    const counted = await Promise.all([raised, other, raised].map((keyId) => hit(counter, keyId)))
    t.strictSame(
      counted.map(({ version }) => version),
      [7, 0, 7],
    )
  })

  t.test('a version is never lowered, in whatever order the news come', async (t) => {
    const counter = await openOne(t)
    const version = fc.integer({ min: 1, max: 2 ** 31 - 1 })
    await fc.assert(
      fc.asyncProperty(
        fc.array(version, { minLength: 1, maxLength: 8 }),
        fc.boolean(),
        async (versions, atOnce) => {
          const keyId = newId('apk_')
          const news = versions.map((version) => ({ keyId, version }))
          if (atOnce) await Promise.all(news.map((one) => counter.raise([one])))
          else await counter.raise(news)
          return (await hit(counter, keyId)).version === Math.max(...versions)
        },
      ),
      { numRuns: 40 },
    )
    t.pass('for every order tried')
  })

  t.test('the versions of many keys are raised by one call', async (t) => {
    const counter = await openOne(t)
    const news = upTo(1201).map((version) => ({ keyId: newId('apk_'), version }))
    t.equal(await counter.raise(news), true)
    const counted = await Promise.all(news.map(({ keyId }) => hit(counter, keyId)))
    const wrong = counted.filter(({ version }, i) => version !== i + 1)
    t.equal(wrong.length, 0, 'each key shows its own')
  })

  t.test('raising nothing is confirmed', async (t) => {
    t.equal(await (await openOne(t)).raise([]), true)
  })

  t.test('a hit that was taken is answered although the counter is closed', async (t) => {
    const counter = await openOne(t)
    const answered = hits(counter, newId('apk_'), 5)
    await counter.close()
    t.equal((await answered).length, 5)
  })
}

const isUpTo = (sorted: number[]) => sorted.every((number, i) => number === i + 1)
