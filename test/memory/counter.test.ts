// The counter in memory: the conformance suite, and what is its own.
import t from 'tap'
import { createMemoryCounter } from '../../src/memory/counter.ts'
import { createMinuteCounts } from '../../src/memory/minute-counts.ts'
import { newId } from '../../src/rules/id.ts'
import { counterSuite, hit, hits, numbersOf, upTo } from './counter-suite.ts'

counterSuite(t, async (t) => {
  const counter = createMemoryCounter()
  t.teardown(() => counter.close())
  return [counter]
})

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

t.test('counting begins anew with each minute, on its first millisecond', async (t) => {
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

t.test('the clock of an answer is the one that was given', async (t) => {
  const { counter, setMs } = withClock()
  setMs(1234)
  t.equal((await hit(counter, newId('apk_'))).turn.nowMs, startMs + 1234)
})

t.test('a version outlives every cached copy', async (t) => {
  const { counter, setMs } = withClock()
  const keyId = newId('apk_')
  await counter.raise([{ keyId, version: 3 }])
  setMs(599_000)
  t.equal((await hit(counter, keyId)).version, 3)
})

t.test('versions are forgotten only after their time, however many there are', async (t) => {
  const { counter, setMs } = withClock()
  const first = newId('apk_')
  await counter.raise([{ keyId: first, version: 3 }])
  setMs(599_000)
  for (let i = 0; i < 3; i++) {
    await counter.raise(upTo(6000).map((version) => ({ keyId: newId('apk_'), version })))
  }
  t.equal((await hit(counter, first)).version, 3)
})

t.test('nothing vouches for a copy where counting is in memory', async (t) => {
  const counter = createMemoryCounter()
  t.equal(counter.mode, 'memory')
  const keyId = newId('apk_')
  await counter.raise([{ keyId, version: 2 }])
  t.equal((await hit(counter, keyId)).turn.shared, false)
})

t.test('a change beside a running service cannot be confirmed', async (t) => {
  const counter = createMemoryCounter({ alone: false })
  t.equal(await counter.raise([{ keyId: newId('apk_'), version: 2 }]), false)
})

t.test('a full minute sheds new keys, counts known ones on, and leaves the next minute open', async (t) => {
  let nowMs = startMs
  const counter = createMemoryCounter({ counts: createMinuteCounts(2), now: () => nowMs })
  const numbers: number[] = []
  const count = (keyId: string) => counter.hit(keyId, (number) => numbers.push(number))
  t.strictSame(['apk_1', 'apk_2', 'apk_3', 'apk_3', 'apk_1'].map(count), [true, true, false, false, true])
  t.strictSame(numbers, [1, 1, 2], 'nobody is called for what is shed')
  nowMs += minuteMs
  t.equal(count('apk_3'), true, 'the next minute has room')
  t.strictSame(numbers, [1, 1, 2, 1])
})
