// Counting on one Redis server, without one: the test answers the scripts and sets the clocks.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { install } from '@sinonjs/fake-timers'
import t, { type Test } from 'tap'
import { createMinuteCounts } from '../../src/memory/minute-counts.ts'
import { createShard, type ShardOptions } from '../../src/redis/shard.ts'
import { type CountReply, type Lease, type Outage, Unavailable } from '../../src/stores.ts'

// Timeouts and probes pass as fast as they are waited for. Turns of the event loop are real.
const clock = install({
  toFake: ['setTimeout', 'clearTimeout', 'performance'],
  shouldClearNativeTimers: true,
})
t.teardown(() => clock.uninstall())

async function until(what: string, isTrue: () => boolean) {
  const endMs = clock.now + 60_000
  while (!isTrue()) {
    if (clock.now > endMs) throw new Error(`waited a minute until ${what}`)
    await clock.tickAsync(10)
    await nextTurn()
  }
}

async function settled<T>(waiting: Promise<T>): Promise<T> {
  let isSettled = false
  waiting.finally(() => (isSettled = true)).catch(() => {})
  await until('the promise settles', () => isSettled)
  return waiting
}

const startMs = 29_000_000 * 60_000
const waitingMax = 50_000

interface Call {
  keyIds: string[]
  sums: number[]
  lastMinute: number
  answer(...counted: (number | Lease)[]): void
  fail(error: Error): void
}

interface Answer {
  number: number
  version: number | Lease
  turn: CountReply
}

/** An error as ioredis gives it when a server answered with one. */
const replyError = (message: string) => Object.assign(new Error(message), { name: 'ReplyError' })
const withCode = (code: string) => Object.assign(new Error(code), { code })

/** The time as Redis answers it. */
const clockOf = (ms: number) => [Math.floor(ms / 1000), (ms % 1000) * 1000]
const noAnswer = () => new Promise<never>(() => {})

function open(t: Test, options: Partial<ShardOptions> = {}) {
  const seen = {
    calls: [] as Call[],
    outages: [] as (Outage['cause'] | null)[],
    standstills: 0,
    reconnects: 0,
    redisMs: startMs,
    fault: null as Error | null,
    mayOvertake: false,
    probe: async (): Promise<number[]> => clockOf(seen.redisMs),
  }
  const shard = createShard({
    scripts: {
      hit: (keyIds, sums, lastMinute) =>
        new Promise((resolve, reject) => {
          const answer = (...counted: (number | Lease)[]) => resolve([...clockOf(seen.redisMs), ...counted])
          seen.calls.push({ keyIds, sums, lastMinute, answer, fail: reject })
        }),
      mayOvertake: () => seen.mayOvertake,
    },
    lastCounts: createMinuteCounts(),
    groupOf: () => '',
    fault: () => seen.fault,
    probe: () => seen.probe(),
    locate() {},
    reconnect: () => seen.reconnects++,
    onOutage: (outage) => seen.outages.push(outage === null ? null : outage.cause),
    onStandstill: () => seen.standstills++,
    now: () => startMs,
    answerTimeoutMs: 100,
    ...options,
  })
  t.teardown(() => shard.close())
  const hit = (keyId = 'apk_1') =>
    new Promise<Answer>((resolve, reject) => {
      const taken = shard.hit(keyId, (number, version, turn) => resolve({ number, version, turn }))
      if (!taken) reject(new Error('shed'))
    })
  const called = (count: number) => until('the call is sent', () => seen.calls.length >= count)
  const untilShared = () => until('Redis counts', () => shard.server.mode === 'shared')
  return { seen, shard, hit, called, untilShared }
}

t.test('a clock that has stood still shows in the reply to a hit, and to a probe', async (t) => {
  const { seen, shard, hit, called, untilShared } = open(t)
  await untilShared()
  t.equal(seen.standstills, 0)
  seen.redisMs += 60_000
  const counted = new Promise<number>((done) => shard.hit('apk_1', () => done(seen.standstills)))
  await called(1)
  seen.calls[0]!.answer(1, 1)
  t.equal(await counted, 1, 'before the request goes on')
  const failed = hit()
  await called(2)
  seen.redisMs += 60_000
  seen.calls[1]!.fail(withCode('ECONNRESET'))
  await failed
  await untilShared()
  t.equal(seen.standstills, 2)
})

t.test('a probe that is answered late is no standstill', async (t) => {
  const { seen, hit, called, untilShared } = open(t)
  await untilShared()
  const aheadMs = seen.redisMs - clock.now
  let late = 0
  seen.probe = () => {
    const reply = clockOf(aheadMs + clock.now)
    return new Promise((resolve) => setTimeout(resolve, late++ === 0 ? 500 : 0, reply))
  }
  const failed = hit()
  await called(1)
  seen.calls[0]!.fail(withCode('ECONNRESET'))
  await failed
  await untilShared()
  await until('the late answer is there', () => clock.countTimers() === 0)
  t.ok(late > 1)
  t.equal(seen.standstills, 0)
})

t.test('hits of a turn go as one call, and each gets its number and the version of its key', async (t) => {
  const batches: [number, number][] = []
  const { seen, hit } = open(t, { onBatch: (...batch) => batches.push(batch) })
  const hits = [hit('apk_1'), hit('apk_2'), hit('apk_1')]
  await nextTurn()
  t.equal(seen.calls.length, 1, 'at the end of the turn')
  t.strictSame(batches, [[3, 2]])
  const { keyIds, sums, answer } = seen.calls[0]!
  t.strictSame({ keyIds, sums }, { keyIds: ['apk_1', 'apk_2'], sums: [2, 1] })
  answer(7, 3, 1, '4?1.2')
  const turn = { shared: true }
  const [first, other, last] = await Promise.all(hits)
  t.match(first, { number: 6, version: 3, turn })
  t.match(other, { number: 1, version: '4?1.2', turn }, 'a lease is passed on as such')
  t.match(last, { number: 7, version: 3, turn })
})

t.test('one hit more than may wait is shed, and there is room again after the answers', async (t) => {
  const { seen, shard, called } = open(t, { probe: noAnswer })
  let answered = 0
  const hit = () => shard.hit('apk_1', () => answered++)
  for (let i = 0; i < waitingMax; i++) if (!hit()) t.fail(`hit ${i} was shed`)
  t.equal(hit(), false)
  await called(1)
  seen.calls[0]!.answer(waitingMax, 0)
  await until('the hits are answered', () => answered === waitingMax)
  t.equal(hit(), true)
  t.equal(answered, waitingMax, 'a shed hit gets no answer')
})

t.test('behind two turns without an answer hits wait for one time limit only', async (t) => {
  const { seen, hit, untilShared } = open(t)
  await untilShared()
  seen.probe = noAnswer
  const hits: Promise<Answer>[] = []
  for (let turn = 0; turn < 10; turn++) {
    for (let i = 0; i < 50; i++) hits.push(hit(`apk_${i}`))
    await nextTurn()
  }
  t.ok((await settled(Promise.all(hits))).every(({ turn }) => !turn.shared))
  t.equal(seen.calls.length, 2, 'what gathered behind the two was not sent')
})

t.test('after a pause of Redis of 50 ms, it has counted every hit', async (t) => {
  const { seen, hit, untilShared } = open(t)
  await untilShared()
  let count = 0
  const answerAll = async () => {
    for (const { sums, answer } of seen.calls.splice(0)) {
      count += sums[0]!
      answer(count, 1)
    }
    await nextTurn()
  }
  const hits = [hit()]
  await nextTurn()
  await clock.tickAsync(2)
  await answerAll()
  for (let ms = 0; ms < 50; ms++) {
    for (let i = 0; i < 20; i++) hits.push(hit())
    await nextTurn()
    await clock.tickAsync(1)
  }
  while (count < hits.length) await answerAll()
  const counted = await Promise.all(hits)
  t.ok(counted.every(({ turn }) => turn.shared))
  t.strictSame(
    counted.map(({ number }) => number),
    hits.map((_, i) => i + 1),
  )
  t.strictSame(seen.outages, [])
})

t.test("a turn has Redis's clock in whole milliseconds, and each call says how long it took", async (t) => {
  const tookS: number[] = []
  const { seen, hit, called } = open(t, { onCall: (seconds) => tookS.push(seconds) })
  seen.redisMs = startMs + 1234.9
  const first = hit()
  await called(1)
  await clock.tickAsync(50)
  seen.calls[0]!.answer(1, 0)
  t.equal((await first).turn.nowMs, startMs + 1234)
  const late = hit()
  await settled(late)
  t.equal(tookS.length, 2)
  t.ok(tookS[0]! >= 0.05 && tookS[0]! < 0.08, `${tookS[0]} s`)
  t.ok(tookS[1]! >= 0.1 && tookS[1]! < 0.15, `${tookS[1]} s`)
})

t.test('the farther Redis is, the more turns are in flight, but not after it was silent', async (t) => {
  const { seen, hit, untilShared } = open(t)
  await untilShared()
  async function inFlight() {
    const before = seen.calls.length
    for (let turn = 0; turn < 4; turn++) {
      void hit()
      await nextTurn()
    }
    return seen.calls.length - before
  }
  void hit()
  await nextTurn()
  await clock.tickAsync(10)
  seen.calls[0]!.answer(1, 0)
  await nextTurn()
  t.equal(await inFlight(), 4)
  await settled(hit())
  await untilShared()
  t.equal(await inFlight(), 2)
})

t.test("while Redis is down the window is still that of Redis's clock", async (t) => {
  const aheadMs = 90_000
  const { seen, shard, hit, called } = open(t)
  seen.redisMs = startMs + aheadMs
  const first = hit()
  await called(1)
  seen.calls[0]!.answer(5, 2)
  t.equal((await first).turn.nowMs, startMs + aheadMs)
  shard.goLocal(new Error('gone'))
  const { number, version, turn } = await hit()
  t.strictSame([turn.nowMs, turn.shared], [startMs + aheadMs, false])
  t.equal(number, 6, 'counting goes on from the last count seen in that minute')
  t.equal(version, 0)
})

t.test('a probe also reads the clock of Redis, even for hits that Redis fails to count', async (t) => {
  const { seen, shard, hit, called, untilShared } = open(t)
  seen.redisMs = startMs - 120_000
  await untilShared()
  const first = hit()
  await called(1)
  seen.calls[0]!.fail(replyError('OOM command not allowed'))
  t.equal((await first).turn.nowMs, startMs - 120_000)
  t.equal(shard.server.mode, 'local')
  t.equal((await hit()).turn.nowMs, startMs - 120_000)
})

t.test('of calls that may overtake each other, each has the count that Redis gave it', async (t) => {
  const { seen, hit, called, untilShared } = open(t)
  await untilShared()
  const hits: Promise<Answer>[] = []
  for (const n of [1, 2, 3, 4]) {
    hits.push(hit())
    if (n < 3) await called(n)
  }
  seen.mayOvertake = true
  seen.calls[1]!.answer(2, 1)
  seen.calls[0]!.answer(1, 1)
  await called(3)
  seen.calls[2]!.answer(4, 1)
  t.strictSame(
    (await Promise.all(hits)).map(({ number }) => number),
    [1, 2, 3, 4],
  )
  const local = hit()
  await called(4)
  const late = hit()
  await called(5)
  seen.calls[3]!.fail(withCode('ECONNRESET'))
  t.equal((await local).number, 5)
  seen.calls[4]!.answer(5, 1)
  t.equal((await late).number, 6, 'Redis may lack what was counted without it')
  await untilShared()
  const lost = hit()
  await called(6)
  seen.calls[5]!.answer(1, 1)
  t.equal((await lost).number, 7, 'and what it had before the call')
})

t.test('hits that were counted without Redis are not lost to a late reply', async (t) => {
  const { seen, shard, hit, called, untilShared } = open(t)
  seen.mayOvertake = true
  await untilShared()
  const first = hit()
  await called(1)
  shard.goLocal(new Error('gone'))
  t.equal((await hit()).number, 1)
  seen.calls[0]!.answer(1, 1)
  t.equal((await first).number, 2)
  await untilShared()
  const [failing, second] = [hit(), nextTurn().then(() => hit())]
  await called(3)
  seen.calls[1]!.fail(withCode('ECONNRESET'))
  t.equal((await failing).number, 3)
  t.equal((await hit()).number, 4)
  seen.calls[2]!.answer(3, 1)
  t.equal((await second).number, 5)
})

t.test('a call that timed out is not repeated, and its late answer is used', async (t) => {
  const { seen, shard, hit, called, untilShared } = open(t)
  await untilShared()
  seen.probe = () => Promise.reject(new Unavailable('no answer'))
  const hits = [hit(), hit(), hit('apk_2')]
  await called(1)
  const local = { version: 0, turn: { shared: false } }
  t.match(await settled(Promise.all(hits)), [{ number: 1, ...local }, { number: 2 }, { number: 1 }])
  t.equal(shard.server.mode, 'local')
  t.strictSame(seen.outages, ['timeout'])
  seen.calls[0]!.answer(3, 1, 1, 1)
  await nextTurn()
  await nextTurn()
  t.equal((await hit()).number, 4, 'another instance had counted one')
  t.equal((await hit('apk_2')).number, 2, 'and ours are not counted twice')
  seen.probe = async () => clockOf(startMs)
  await untilShared()
  t.equal(seen.calls.length, 1, 'nothing is sent again')
  t.strictSame(seen.outages, ['timeout', null])
})

t.test('no hit is counted twice if a later call is given up before an earlier one', async (t) => {
  const { seen, hit, called, untilShared } = open(t)
  await untilShared()
  seen.probe = noAnswer
  const earlier = hit()
  await called(1)
  await clock.tickAsync(25)
  const later = hit()
  await called(2)
  // This process was busy. The earlier call's time was up 30 ms ago, so it gets some more; the later one's 5 ms ago.
  clock.jump(130 - 25)
  t.match(await settled(later), { number: 1, turn: { shared: false } })
  seen.calls[0]!.answer(1, 1)
  seen.calls[1]!.answer(2, 1)
  t.equal((await earlier).number, 2)
})

t.test('Redis may count a call until the minute ends in which its reply is awaited', async (t) => {
  const { seen, hit, called, untilShared } = open(t)
  const minute = startMs / 60_000
  for (const [i, [redisMs, lastMinute]] of [
    [startMs, minute],
    [startMs + 59_899, minute],
    [startMs + 59_900, minute + 1],
  ].entries()) {
    seen.redisMs = redisMs!
    if (i === 0) await untilShared()
    const read = hit()
    await called(2 * i + 1)
    seen.calls[2 * i]!.answer(1, 1)
    await read
    const counted = hit()
    await called(2 * i + 2)
    t.equal(seen.calls[2 * i + 1]!.lastMinute, lastMinute)
    seen.calls[2 * i + 1]!.answer(2, 1)
    await counted
  }
})

t.test('what Redis does not count as too late is sent again only if its clock has stepped', async (t) => {
  const { seen, shard, hit, called, untilShared } = open(t)
  await untilShared()
  const awaited = hit()
  await called(1)
  seen.redisMs += 60_000
  seen.calls[0]!.answer()
  await called(2)
  t.equal(seen.calls[1]!.lastMinute, seen.calls[0]!.lastMinute + 1)
  seen.calls[1]!.answer(1, 1)
  t.match(await awaited, { number: 1, turn: { shared: true } })
  t.strictSame(seen.outages, [])

  const late = hit()
  await called(3)
  t.match(await settled(late), { number: 2, turn: { shared: false } })
  seen.calls[2]!.answer()
  await nextTurn()
  shard.goLocal(new Error('gone'))
  t.equal((await hit()).number, 3, 'and leaves the count as it is')
  t.equal(seen.calls.length, 3)
})

t.test('an answer that is two minutes late leaves the counts of this minute', async (t) => {
  let nowMs = startMs
  const { seen, hit, called, untilShared } = open(t, { now: () => nowMs })
  await untilShared()
  seen.probe = () => Promise.reject(new Unavailable('no answer'))
  const first = hit()
  await called(1)
  await settled(first)
  nowMs += 120_000
  t.equal((await hit()).number, 1)
  seen.calls[0]!.answer(8, 1)
  await nextTurn()
  t.equal((await hit()).number, 2)
})

t.test('a server that is two minutes behind another does not take the counts of that one', async (t) => {
  const lastCounts = createMinuteCounts()
  const [down, behind] = [open(t, { lastCounts }), open(t, { lastCounts })]
  down.seen.redisMs = startMs + 120_000
  await down.untilShared()
  down.shard.goLocal(new Error('gone'))
  for (const expected of [1, 2, 3]) {
    t.equal((await down.hit('apk_1')).number, expected)
    const other = behind.hit('apk_2')
    await behind.called(expected)
    behind.seen.calls[expected - 1]!.answer(expected, 1)
    t.equal((await other).number, expected)
  }
})

t.test('only a probe ends an outage', async (t) => {
  const { seen, shard, hit, called, untilShared } = open(t)
  let probes = 0
  await untilShared()
  seen.probe = () => {
    probes++
    return Promise.reject(replyError('LOADING Redis is loading the dataset in memory'))
  }
  const [one, other] = [hit('apk_1'), called(1).then(() => hit('apk_2'))]
  await called(2)
  seen.calls[0]!.fail(replyError('OOM command not allowed'))
  t.match(await one, { turn: { shared: false } })
  seen.calls[1]!.answer(1, 0)
  t.match(await other, { turn: { shared: true } }, 'Redis answers what was under way')
  t.equal(shard.server.mode, 'local', 'but that does not end the outage')
  // For longer than a silent connection is tolerated.
  await until('there were some probes', () => probes > 7)
  t.match(shard.server, { mode: 'local', outage: { cause: 'loading' } })
  t.equal(seen.reconnects, 0, 'any answer shows that the connection is alive')
  t.match(await hit('apk_1'), { number: 2, turn: { shared: false } })
  t.equal(seen.calls.length, 2, 'no hit is sent meanwhile')
  seen.probe = async () => clockOf(startMs)
  await untilShared()
  t.equal(shard.server.outage, null)
  t.strictSame(seen.outages, ['out_of_memory', null])
})

t.test('a connection that answers no probe is replaced', async (t) => {
  const { seen, shard } = open(t, { probe: noAnswer })
  shard.goLocal(new Error('gone'))
  await until('it is replaced', () => seen.reconnects > 0)
  t.strictSame(seen.outages, ['other'])
})

t.test('a new shard says neither that its server counts nor that it is down before it knows', async (t) => {
  const { seen, shard, hit, called } = open(t, { probe: noAnswer })
  t.match(shard.server, { mode: 'new', outage: null })
  const first = hit()
  await called(1)
  seen.calls[0]!.answer(1, 0)
  await first
  t.equal(shard.server.mode, 'shared')
})

t.test('a new shard whose server is not connected for a second counts locally, and says why', async (t) => {
  const { seen, shard, hit } = open(t)
  seen.fault = withCode('DEPTH_ZERO_SELF_SIGNED_CERT')
  await until('the outage is seen', () => shard.server.outage !== null)
  t.match(shard.server.outage, { cause: 'certificate', reason: 'DEPTH_ZERO_SELF_SIGNED_CERT' })
  t.match(await hit(), { number: 1, turn: { shared: false } })
  t.equal(seen.calls.length, 0)
})

t.test('an outage reports once each cause that lasts or has no name', async (t) => {
  const { seen, shard } = open(t)
  seen.fault = withCode('EHOSTUNREACH')
  shard.goLocal(new Error('not connected'))
  for (const code of [
    'ECONNREFUSED',
    'ENOTFOUND',
    'ECONNREFUSED',
    'ENOTFOUND',
    'CERT_HAS_EXPIRED',
    'EMFILE',
  ]) {
    seen.fault = withCode(code)
    const { cause } = shard.server.outage!
    await until('the cause is seen', () => shard.server.outage!.cause !== cause)
  }
  t.strictSame(seen.outages, ['unreachable', 'unknown_host', 'certificate', 'other'])
})

t.test('while counting is local, a hit on a new key without room is shed', async (t) => {
  const { shard, hit } = open(t, { lastCounts: createMinuteCounts(1) })
  shard.goLocal(new Error('gone'))
  t.equal((await hit('apk_1')).number, 1)
  await t.rejects(hit('apk_2'), { message: 'shed' })
  t.match(await hit('apk_1'), { number: 2, turn: { nowMs: startMs } })
  t.equal(
    shard.hit('apk_1', () => {}),
    true,
  )
})

t.test('hits that waited for Redis in vain and find no room get numbers below 1', async (t) => {
  const { shard, hit } = open(t, { lastCounts: createMinuteCounts(1) })
  const hits = [hit('apk_1'), hit('apk_2'), hit('apk_2'), hit('apk_1')]
  shard.goLocal(new Error('gone'))
  const numbers = (await Promise.all(hits)).map(({ number }) => number)
  t.strictSame([numbers[0], numbers[3]], [1, 2])
  t.ok(numbers[1]! < 1 && numbers[2]! < 1, `${numbers}`)
})

t.test('each outage is reported, also one like the last', async (t) => {
  const { seen, shard, untilShared } = open(t)
  for (let n = 0; n < 2; n++) {
    shard.goLocal(new Error('gone'))
    await untilShared()
  }
  t.strictSame(seen.outages, ['other', null, 'other', null])
})
