/** What every counter promises, wherever it counts. Run by the test file of each implementation. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'
import type { Test } from 'tap'
import { newId } from '../../src/rules/id.ts'
import { minuteOf } from '../../src/rules/window.ts'
import type { Counter, CountReply, KeyCount, Lease } from '../../src/stores.ts'

export interface Counted {
  number: number
  version: number | Lease
  turn: CountReply
}

/** One hit, with its answer. */
export function hit(counter: Counter, keyId: string): Promise<Counted> {
  return new Promise((resolve, reject) => {
    const taken = counter.hit(keyId, (number, version, turn) => resolve({ number, version, turn }))
    if (!taken) reject(new Error('the counter is full'))
  })
}

export const hitAll = (counter: Counter, keyIds: string[]) =>
  Promise.all(keyIds.map((keyId) => hit(counter, keyId)))
export const hits = (counter: Counter, keyId: string, count: number) =>
  hitAll(counter, new Array<string>(count).fill(keyId))

/** The version that a key read now must have at least. */
export const minVersionOf = ({ version }: Counted) => Number.parseInt(`${version}`, 10)

export const numbersOf = (counted: Counted[]) => counted.map(({ number }) => number)
export const upTo = (n: number) => Array.from({ length: n }, (_, i) => i + 1)
export const ascending = (a: number, b: number) => a - b
export const newKeyIds = (count: number) => upTo(count).map(() => newId('apk_'))

/**
 * Repeats the work if a minute ended in it: its numbers would restart halfway. `minuteNow`: the
 * counting clock's minute, for work that begins by writing a counter itself.
 */
export async function inOneMinute(
  work: () => Promise<Counted[]>,
  minuteNow?: () => Promise<number>,
): Promise<Counted[]> {
  for (let tries = 1; ; tries++) {
    const startedIn = await minuteNow?.()
    const counted = await work()
    const minutes = new Set(counted.map(({ turn }) => Math.floor(turn.nowMs / 60_000)))
    if (startedIn !== undefined) minutes.add(startedIn)
    if (minutes.size <= 1 || tries === 3) return counted
  }
}

/** The last of these tests closes the counter. */
export function counterSuite(t: Test, counter: Counter): void {
  t.test('the hits on a key are numbered from 1', async (t) => {
    const counted = await inOneMinute(async () => {
      const keyId = newId('apk_')
      return [await hit(counter, keyId), await hit(counter, keyId), await hit(counter, keyId)]
    })
    t.strictSame(numbersOf(counted), [1, 2, 3])
  })

  t.test('each number is given once under any interleaving of keys and turns', async (t) => {
    const steps = fc.array(fc.record({ key: fc.nat(4), turnEnds: fc.boolean() }), { maxLength: 60 })
    await fc.assert(
      fc.asyncProperty(steps, async (steps) => {
        let answers: number[] = []
        let numbers: number[][] = []
        await inOneMinute(async () => {
          const keyIds = newKeyIds(5)
          numbers = keyIds.map(() => [])
          answers = steps.map(() => 0)
          const waiting: Promise<Counted>[] = []
          for (const [i, { key, turnEnds }] of steps.entries()) {
            const answered = new Promise<Counted>((resolve) => {
              counter.hit(keyIds[key]!, (number, version, turn) => {
                answers[i]!++
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
        return eachOnce && answers.every((n) => n === 1)
      }),
      { numRuns: 60 },
    )
    t.pass('for every interleaving tried')
  })

  t.test('a turn with hits on many keys numbers each key by itself', async (t) => {
    const counted = await inOneMinute(async () => {
      const keyIds = newKeyIds(2500)
      return hitAll(counter, [...keyIds, ...keyIds])
    })
    const [first, second] = [numbersOf(counted.slice(0, 2500)), numbersOf(counted.slice(2500))]
    const wrong = first.filter((number, key) => !isUpTo([number, second[key]!].sort(ascending)))
    t.equal(first.length, 2500)
    t.strictSame(wrong, [], 'of its two hits one is the first and one the second')
  })

  t.test('an answer carries the counting clock and the time it arrived', async (t) => {
    const beforeMs = performance.now()
    const { turn } = await hit(counter, newId('apk_'))
    t.ok(turn.monoMs >= beforeMs && turn.monoMs <= performance.now())
    t.ok(Number.isInteger(turn.nowMs))
    t.equal(turn.shared, counter.mode() === 'shared')
  })

  t.test('a hit shows the version of its own key as it was raised, and 0 for one never raised', async (t) => {
    const [raised, other] = newKeyIds(2) as [string, string]
    t.equal(await counter.raise([{ keyId: raised, version: 7 }]), true)
    const counted = await hitAll(counter, [raised, other, raised])
    t.strictSame(counted.map(minVersionOf), [7, 0, 7])
  })

  t.test('a version is never lowered, whatever the order in which changes arrive', async (t) => {
    const version = fc.integer({ min: 1, max: 2 ** 31 - 1 })
    const some = fc.array(version, { minLength: 1, maxLength: 8 })
    await fc.assert(
      fc.asyncProperty(some, fc.boolean(), async (versions, atOnce) => {
        const keyId = newId('apk_')
        const changes = versions.map((version) => ({ keyId, version }))
        if (atOnce) await Promise.all(changes.map((one) => counter.raise([one])))
        else await counter.raise(changes)
        return minVersionOf(await hit(counter, keyId)) === Math.max(...versions)
      }),
      { numRuns: 40 },
    )
    t.pass('for every order tried')
  })

  t.test('one call raises the versions of many keys, and raising none is confirmed', async (t) => {
    const changes = newKeyIds(1201).map((keyId, i) => ({ keyId, version: i + 1 }))
    t.equal(await counter.raise(changes), true)
    const counted = await hitAll(
      counter,
      changes.map(({ keyId }) => keyId),
    )
    t.ok(isUpTo(counted.map(minVersionOf)), 'each key shows its own')
    t.equal(await counter.raise([]), true)
  })

  /** Hits on each key, all in one minute: the minute, and how often each was hit. */
  async function hitEach(keys: number) {
    const wanted = new Map<string, number>()
    const counted = await inOneMinute(async () => {
      wanted.clear()
      for (const keyId of newKeyIds(keys)) wanted.set(keyId, 1 + (wanted.size % 3))
      return hitAll(
        counter,
        [...wanted].flatMap(([keyId, count]) => new Array<string>(count).fill(keyId)),
      )
    })
    return { wanted, minute: minuteOf(counted[0]!.turn.nowMs) }
  }

  t.test('a scan visits every counter of its minute, and no other', async (t) => {
    const { wanted, minute } = await hitEach(3000)
    const seen = new Map<string, number>()
    let visited = 0
    const visit = (slice: KeyCount[]) => {
      for (const { keyId, count } of slice) seen.set(keyId, count)
      visited += slice.length
    }
    const scan = await counter.scan(minute, visit, { share: 1 })
    t.strictSame(scan, { complete: true, scanned: visited, mode: counter.mode(), fault: null })
    const wrong = [...wanted].filter(([keyId, count]) => seen.get(keyId) !== count)
    t.strictSame(wrong, [])
    t.match(await counter.scan(minute - 3, visit), { complete: true, scanned: 0 })
  })

  t.test('a scan waits for its visits, ends at its signal, and fails with a visit', async (t) => {
    const { minute } = await hitEach(5000)
    const stop = new AbortController()
    let visited = 0
    const scan = await counter.scan(
      minute,
      async (slice) => {
        await nextTurn()
        visited += slice.length
        stop.abort()
      },
      { share: 1, signal: stop.signal },
    )
    t.match(scan, { complete: false, scanned: visited })
    t.ok(visited > 0 && visited < 5000, `${visited} of 5000`)
    await t.rejects(
      counter.scan(minute, () => Promise.reject(new Error('full'))),
      { message: 'full' },
    )
  })

  t.test('the counts of a few keys are read by themselves, by the counting clock', async (t) => {
    const { wanted, minute } = await hitEach(3)
    const [, second, third] = [...wanted.keys()]
    t.strictSame(await counter.countsOf([third!, second!], [minute, minute - 1]), {
      counts: [3, 0, 2, 0],
      mode: counter.mode(),
    })
    const { turn } = await hit(counter, newId('apk_'))
    const nowMs = await counter.now()
    t.ok(nowMs >= turn.nowMs && nowMs < turn.nowMs + 60_000)
  })

  t.test('a hit that was taken is answered although the counter is closed', async (t) => {
    const answered = hits(counter, newId('apk_'), 5)
    await counter.close()
    t.equal((await answered).length, 5)
  })
}

const isUpTo = (sorted: number[]) => sorted.every((number, i) => number === i + 1)
