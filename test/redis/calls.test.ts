// When hits are sent to a Redis that is near or far. The test is the server, and sets the clock.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { install } from '@sinonjs/fake-timers'
import t from 'tap'
import { createCalls } from '../../src/redis/calls.ts'
import type { Hits } from '../../src/redis/hits.ts'
import { chanceOf } from '../simulation/chance.ts'

const clock = install({ toFake: ['performance'] })
t.teardown(() => clock.uninstall())
const turn = { nowMs: 0, monoMs: 0, shared: true }
/** One turn of the event loop. */
const turnMs = 0.05

interface Load {
  roundTripMs: (nowMs: number) => number
  perSecond: number
  forMs?: number
  /** From when on hits are measured. */
  fromMs?: number
}

/** Hits that arrive by chance, and how long each waited for its answer. */
async function play({ roundTripMs, perSecond, forMs = 150, fromMs = 20 }: Load) {
  const chance = chanceOf(perSecond)
  const calls = createCalls(() => '')
  const pending: { dueMs: number; hits: Hits; answered: (isShared: boolean) => void }[] = []
  const seen = { waitsMs: [] as number[], inFlightMax: 0, calls: 0 }
  const startMs = performance.now()
  const now = () => performance.now() - startMs
  calls.start((hits, answered) => {
    // Replies arrive in order.
    const dueMs = Math.max(now() + roundTripMs(now()), pending.at(-1)?.dueMs ?? 0)
    pending.push({ dueMs, hits, answered })
    seen.calls++
    if (now() > fromMs) seen.inFlightMax = Math.max(seen.inFlightMax, pending.length)
  })
  let nextMs = 0
  while (now() < forMs || pending.length > 0) {
    for (; nextMs <= now() && nextMs < forMs; nextMs -= (Math.log(1 - chance.next()) / perSecond) * 1000) {
      const atMs = nextMs
      const onCounted = () => atMs >= fromMs && seen.waitsMs.push(now() - atMs)
      if (!calls.add('apk_1', onCounted)) throw new Error('shed')
    }
    while (pending[0] && pending[0].dueMs <= now()) {
      const { hits, answered } = pending.shift()!
      hits.answer([hits.size()], [1], turn)
      answered(true)
    }
    await nextTurn()
    clock.tick(turnMs)
  }
  seen.waitsMs.sort((a, b) => a - b)
  const waitMs = (share: number) => seen.waitsMs[Math.floor(seen.waitsMs.length * share)]!
  return { ...seen, waitMs }
}
const distancesMs = [0.5, 1, 2.5, 5, 10]
const rates = [500, 2000, 8000, 14_000]
for (const distanceMs of distancesMs)
  t.test(`with Redis ${distanceMs} ms away, half of the hits wait at most a tenth longer`, async (t) => {
    for (const perSecond of rates) {
      const { waitMs, inFlightMax } = await play({ roundTripMs: () => distanceMs, perSecond })
      const [median, p99] = [waitMs(0.5) / distanceMs, waitMs(0.99) / distanceMs]
      t.ok(median <= 1.1, `${perSecond}/s: the median is ${median} times the distance`)
      // Turns of the event loop are part of it, and weigh more when Redis is near.
      t.ok(p99 <= (distanceMs < 2 ? 1.5 : 1.2), `${perSecond}/s: p99 is ${p99} times the distance`)
      t.ok(inFlightMax <= 24, `${perSecond}/s: ${inFlightMax} in flight`)
    }
  })

t.test('with Redis far away, hits still share calls', async (t) => {
  const { calls, waitsMs } = await play({ roundTripMs: () => 10, perSecond: 14_000 })
  t.ok(calls < waitsMs.length / 4, `${calls} calls for ${waitsMs.length} hits`)
})

t.test('with Redis near, two turns are in flight, also when it gets slow', async (t) => {
  const near = await play({ roundTripMs: () => 0.2, perSecond: 14_000 })
  t.equal(near.inFlightMax, 2)
  const busy = await play({ roundTripMs: (nowMs) => (nowMs < 10 ? 0.2 : 3), perSecond: 14_000 })
  t.equal(busy.inFlightMax, 2, 'a busy server gets fewer and larger calls')
  const roundTripMs = (nowMs: number) => (nowMs < 10 ? 0.2 : 10)
  const moved = await play({ roundTripMs, perSecond: 150, forMs: 1500, fromMs: 1000 })
  t.ok(moved.inFlightMax > 2, 'unless it is farther now, as lone calls show')
})

t.test('a pause of Redis delays hits by not more than the pause and two round trips', async (t) => {
  for (const distanceMs of [0.2, 2.5]) {
    const roundTripMs = (nowMs: number) => (nowMs > 50 && nowMs < 100 ? 100 - nowMs : 0) + distanceMs
    const { waitsMs } = await play({ roundTripMs, perSecond: 14_000 })
    const longestMs = waitsMs.at(-1)!
    t.ok(longestMs <= 50 + 2 * distanceMs + 2 * turnMs, `${longestMs} ms`)
  }
})

/** Calls that are sent when the test looks, and answered when it says so. */
function callsByHand(groupOf: (keyId: string) => string) {
  const calls = createCalls(groupOf)
  const sent: { hits: Hits; answered: (isShared: boolean) => void }[] = []
  const start = () => calls.start((hits, answered) => sent.push({ hits, answered }))
  /** How many calls are sent in a turn with these hits. */
  async function sentWith(...keyIds: string[]) {
    const before = sent.length
    for (const keyId of keyIds) calls.add(keyId, () => {})
    await nextTurn()
    return sent.length - before
  }
  return { calls, sent, start, sentWith }
}

t.test('hits wait until calls can be sent, and then go as one', async (t) => {
  const { sent, start, sentWith } = callsByHand(() => '')
  t.equal(await sentWith('apk_1', 'apk_2', 'apk_1'), 0)
  start()
  t.equal(await sentWith(), 1)
  t.equal(sent[0]!.hits.size(), 3)
})

t.test('each turn is scheduled once, and only if it may be sent', async (t) => {
  const { sent, start, sentWith } = callsByHand(() => '')
  start()
  const scheduled = t.capture(globalThis, 'setImmediate', globalThis.setImmediate)
  const times = async (work: () => unknown) => {
    await work()
    return scheduled().filter(({ args }) => args.length === 2).length
  }
  t.equal(await times(() => sentWith('apk_1', 'apk_2', 'apk_1')), 1)
  t.equal(await times(() => sentWith('apk_1')), 1)
  t.equal(await times(() => sentWith('apk_1')), 0, 'two are in flight')
  t.equal(await times(() => sent[0]!.answered(true)), 1)
  await nextTurn()
  t.equal(sent.length, 3)
  t.equal(await times(() => sent[1]!.answered(true)), 0, 'no hit is waiting')
})

t.test('a turn is in flight until each of its calls is answered', async (t) => {
  const { sent, start, sentWith } = callsByHand((keyId) => keyId)
  start()
  t.equal(await sentWith('apk_1', 'apk_2', 'apk_3'), 3)
  t.equal(await sentWith('apk_1'), 1)
  t.equal(await sentWith('apk_1'), 0)
  for (const { answered } of sent.slice(0, 2)) {
    answered(true)
    t.equal(await sentWith(), 0)
  }
  sent[2]!.answered(true)
  t.equal(await sentWith(), 1)
})

t.test('only answers of the present server say how far it is', async (t) => {
  const { calls, sent, start, sentWith } = callsByHand(() => '')
  start()
  async function atOnce() {
    let turns = 0
    while ((await sentWith('apk_1')) > 0) turns++
    for (const { answered } of sent.splice(0)) answered(false)
    await nextTurn()
    for (const { answered } of sent.splice(0)) answered(false)
    return turns
  }
  async function answerAfter5Ms(isShared: boolean) {
    await sentWith('apk_1')
    clock.tick(5)
    sent.pop()!.answered(isShared)
  }
  await answerAfter5Ms(false)
  t.equal(await atOnce(), 2, 'an answer that did not come from Redis')
  await answerAfter5Ms(true)
  t.ok((await atOnce()) > 2)
  calls.take()
  t.equal(await atOnce(), 2, 'another server may be elsewhere')
})

t.test('a call has at most a thousand keys', async (t) => {
  const { sent, start, sentWith } = callsByHand(() => '')
  start()
  const keyIds = Array.from({ length: 1001 }, (_, i) => `apk_${i}`)
  t.equal(await sentWith(...keyIds, 'apk_1000'), 2)
  t.strictSame(
    sent.map(({ hits }) => hits.keyIds.length),
    [1000, 1],
  )
  t.equal(await sentWith('apk_1'), 1)
})

t.test('50,000 hits wait at most, sent or not', async (t) => {
  const { calls, sent, start } = callsByHand(() => '')
  start()
  const add = (hits: number) => {
    for (let i = 0; i < hits; i++) if (!calls.add('apk_1', () => {})) return i
    return hits
  }
  t.equal(add(30_000), 30_000)
  await nextTurn()
  t.equal(add(30_000), 20_000)
  sent[0]!.answered(true)
  t.equal(add(40_000), 30_000)
  t.strictSame(
    calls.take().map((hits) => hits.size()),
    [50_000],
  )
  t.equal(add(60_000), 50_000)
})
