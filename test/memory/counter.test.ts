// The counter in memory: the conformance suite, and what is its own.
import t from 'tap'
import { createMemoryCounter } from '../../src/memory/counter.ts'
import { createMinuteCounts } from '../../src/memory/minute-counts.ts'
import { newId } from '../../src/rules/id.ts'
import { setClock } from '../clock.ts'
import { counterSuite, hit, hits, numbersOf, upTo } from './counter-suite.ts'

counterSuite(t, createMemoryCounter())

const minuteMs = 60_000
const startMs = 29_000_000 * minuteMs

function withClock() {
  let nowMs = startMs
  const counter = createMemoryCounter({ now: () => nowMs })
  return {
    counter,
    setMs: (ms: number) => {
      nowMs = startMs + ms
    },
  }
}

t.test('counting restarts with each minute, on its first millisecond', async (t) => {
  const { counter, setMs } = withClock()
  const keyId = newId('apk_')
  setMs(minuteMs - 1)
  t.strictSame(numbersOf(await hits(counter, keyId, 3)), [1, 2, 3])
  setMs(minuteMs)
  t.strictSame(numbersOf(await hits(counter, keyId, 2)), [1, 2])
  setMs(7 * minuteMs + 59_999)
  t.equal((await hit(counter, keyId)).number, 1)
})

t.test('a clock set back by a second finds the count of the minute it left', async (t) => {
  const { counter, setMs } = withClock()
  const keyId = newId('apk_')
  setMs(minuteMs - 500)
  await hits(counter, keyId, 3)
  setMs(minuteMs)
  await hit(counter, keyId)
  setMs(minuteMs - 500)
  t.equal((await hit(counter, keyId)).number, 4)
  setMs(minuteMs)
  t.equal((await hit(counter, keyId)).number, 2)
})

t.test('an answer has the time of the clock that was passed in', async (t) => {
  const { counter, setMs } = withClock()
  setMs(1234)
  t.equal((await hit(counter, newId('apk_'))).turn.nowMs, startMs + 1234)
})

t.test('a version outlives every cached copy, however many there are', async (t) => {
  const { counter, setMs } = withClock()
  const clock = setClock(t)
  const [first, other] = [newId('apk_'), newId('apk_')]
  await counter.raise([first, other].map((keyId) => ({ keyId, version: 3 })))
  setMs(3_600_000)
  clock.advance(599_999)
  for (let i = 0; i < 3; i++) {
    await counter.raise(upTo(6000).map((version) => ({ keyId: newId('apk_'), version })))
  }
  t.equal((await hit(counter, first)).version, 3, 'also after a step of the clock')
  clock.advance(1)
  await counter.raise([{ keyId: other, version: 2 }])
  t.equal((await hit(counter, first)).version, 0, 'and is then forgotten')
  t.equal((await hit(counter, other)).version, 2, 'the database may have been restored')
})

t.test('counting in memory confirms no cached copy', async (t) => {
  const counter = createMemoryCounter()
  t.equal(counter.mode(), 'memory')
  const keyId = newId('apk_')
  await counter.raise([{ keyId, version: 2 }])
  t.equal((await hit(counter, keyId)).turn.shared, false)
})

t.test('a counter that is not alone cannot confirm a change', async (t) => {
  const counter = createMemoryCounter({ alone: false })
  t.equal(await counter.raise([{ keyId: newId('apk_'), version: 2 }]), false)
})

t.test('a full minute sheds new keys, counts known ones on, and leaves the next minute open', async (t) => {
  let nowMs = startMs
  const counter = createMemoryCounter({ counts: createMinuteCounts(2), now: () => nowMs })
  const numbers: number[] = []
  const count = (keyId: string) => counter.hit(keyId, (number) => numbers.push(number))
  t.strictSame(['apk_1', 'apk_2', 'apk_3', 'apk_3', 'apk_1'].map(count), [true, true, false, false, true])
  t.strictSame(numbers, [1, 1, 2], 'a shed hit gets no answer')
  nowMs += minuteMs
  t.equal(count('apk_3'), true, 'the next minute has room')
  t.strictSame(numbers, [1, 1, 2, 1])
})

t.test('minutes in which an earlier process was killed may lack counts, and no others', async (t) => {
  const counter = createMemoryCounter()
  counter.restore!(6, [{ keyId: 'apk_1', count: 3 }], false)
  t.equal(counter.mayLackCounts(6), false)
  for (const minute of [7, 8]) counter.restore!(minute, [], true)
  counter.restore!(9, [], false)
  t.strictSame([6, 7, 8, 9].map(counter.mayLackCounts), [false, true, true, false])
})

t.test('a scan visits only counts above the one asked for, and reads all', async (t) => {
  const counter = createMemoryCounter()
  counter.restore!(
    7,
    [1, 2, 3].map((count) => ({ keyId: `apk_${count}`, count })),
    false,
  )
  const visited: number[] = []
  const visit = (slice: { count: number }[]) => void visited.push(...slice.map(({ count }) => count))
  t.match(await counter.scan(7, visit, { above: () => 1 }), { complete: true, scanned: 3 })
  t.strictSame(visited, [2, 3])
})

t.test('a visit learns how many counts were read for it', async (t) => {
  const counter = createMemoryCounter()
  const counts = Array.from({ length: 5000 }, (_, i) => ({ keyId: `apk_${i}`, count: 1 }))
  counter.restore!(7, counts, false)
  const read: number[] = []
  const visit = (slice: unknown[], count: number) => void read.push(slice.length, count)
  await counter.scan(7, visit)
  t.strictSame(read, [2000, 2000, 2000, 2000, 1000, 1000])
})
