// Counting on one Redis server, without one: scripts that answer when told to, and clocks that are set.
import t, { type Test } from 'tap'
import { createMinuteCounts } from '../../src/memory/minute-counts.ts'
import { createShard, type ShardOptions } from '../../src/redis/shard.ts'
import { type CountReply, type Outage, Unavailable } from '../../src/stores.ts'
import { until } from '../process/until.ts'

const startMs = 29_000_000 * 60_000
const waitingMax = 50_000

interface Call {
  keyIds: string[]
  sums: number[]
  answer(...counted: number[]): void
  fail(error: Error): void
}

interface Answer {
  number: number
  version: number
  turn: CountReply
}

/** As ioredis gives what a server answers. */
const replyError = (message: string) => Object.assign(new Error(message), { name: 'ReplyError' })

/** Time as Redis tells it. */
const clockOf = (ms: number) => [Math.floor(ms / 1000), (ms % 1000) * 1000]

function open(t: Test, options: Partial<ShardOptions> = {}) {
  const seen = {
    calls: [] as Call[],
    outages: [] as (Outage['cause'] | null)[],
    reconnects: 0,
    redisMs: startMs,
    fault: null as Error | null,
    probe: async (): Promise<number[]> => clockOf(seen.redisMs),
  }
  const shard = createShard({
    scripts: {
      hit: (keyIds, sums) =>
        new Promise((resolve, reject) => {
          const answer = (...counted: number[]) => resolve([...clockOf(seen.redisMs), ...counted])
          seen.calls.push({ keyIds, sums, answer, fail: reject })
        }),
    },
    lastCounts: createMinuteCounts(),
    groupOf: () => '',
    fault: () => seen.fault,
    probe: () => seen.probe(),
    locate() {},
    reconnect: () => seen.reconnects++,
    onOutage: (outage) => seen.outages.push(outage === null ? null : outage.cause),
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
  const called = (count: number) => until('the shard has got there', () => seen.calls.length >= count)
  return { seen, shard, hit, called }
}

t.test('hits of a turn go as one call, and each gets its number and the version of its key', async (t) => {
  const { seen, hit, called } = open(t)
  const hits = [hit('apk_1'), hit('apk_2'), hit('apk_1')]
  await called(1)
  const { keyIds, sums, answer } = seen.calls[0]!
  t.strictSame(
    [keyIds, sums],
    [
      ['apk_1', 'apk_2'],
      [2, 1],
    ],
  )
  answer(7, 3, 1, -1)
  t.strictSame(
    (await Promise.all(hits)).map(({ number, version, turn }) => [number, version, turn.shared]),
    [
      [6, 3, true],
      [1, -1, true],
      [7, 3, true],
    ],
    'an unreadable version is passed on as such',
  )
})

t.test('one hit more than may wait is shed, and there is room again after the answers', async (t) => {
  const { seen, shard, called } = open(t, { probe: () => new Promise(() => {}) })
  let answered = 0
  const hit = () => shard.hit('apk_1', () => answered++)
  for (let i = 0; i < waitingMax; i++) if (!hit()) t.fail(`hit ${i} was shed`)
  t.equal(hit(), false)
  await called(1)
  seen.calls[0]!.answer(waitingMax, 0)
  await until('the shard has got there', () => answered === waitingMax)
  t.equal(hit(), true)
  t.equal(answered, waitingMax, 'nobody is called for what is shed')
})

t.test('while Redis is down its clock goes on where it was', async (t) => {
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
  t.equal(number, 6, "in the minute of Redis's clock, on from the last count seen")
  t.equal(version, 0)
})

t.test('hits that Redis did not answer are counted by its clock too', async (t) => {
  const { seen, shard, hit, called } = open(t)
  seen.redisMs = startMs + 90_000
  await until('it counts in Redis', () => shard.isShared)
  const first = hit()
  await called(1)
  seen.calls[0]!.fail(replyError('OOM command not allowed'))
  t.equal((await first).turn.nowMs, startMs + 90_000)
})

t.test('the clock of a probe counts too', async (t) => {
  const { seen, shard, hit } = open(t)
  seen.redisMs = startMs - 120_000
  await until('it counts in Redis', () => shard.isShared)
  shard.goLocal(new Error('gone'))
  t.equal((await hit()).turn.nowMs, startMs - 120_000)
})

t.test('a call that timed out is not repeated, and what it answers late is known', async (t) => {
  const { seen, shard, hit, called } = open(t)
  await until('it counts in Redis', () => shard.isShared)
  seen.probe = () => Promise.reject(new Unavailable('no answer'))
  const hits = [hit(), hit()]
  await called(1)
  t.match(await Promise.all(hits), [{ number: 1, turn: { shared: false } }, { number: 2 }])
  t.equal(shard.isShared, false)
  t.strictSame(seen.outages, ['timeout'])
  seen.calls[0]!.answer(3, 1)
  await new Promise(setImmediate)
  t.equal((await hit()).number, 4, 'another instance had counted one, and ours are not counted twice')
  seen.probe = async () => clockOf(startMs)
  await until('it counts in Redis', () => shard.isShared)
  t.equal(seen.calls.length, 1, 'nothing is sent again')
  t.strictSame(seen.outages, ['timeout', null])
})

t.test('only a probe ends an outage', async (t) => {
  const { seen, shard, hit, called } = open(t)
  let probes = 0
  await until('it counts in Redis', () => shard.isShared)
  seen.probe = () => {
    probes++
    return Promise.reject(replyError('LOADING Redis is loading the dataset in memory'))
  }
  const [one, other] = [hit('apk_1'), called(1).then(() => hit('apk_2'))]
  await called(2)
  seen.calls[0]!.fail(replyError('OOM command not allowed'))
  t.match(await one, { turn: { shared: false } })
  seen.calls[1]!.answer(1, 0)
  t.match(await other, { turn: { shared: true } }, 'what was under way is answered by Redis')
  t.equal(shard.isShared, false, 'but does not end it')
  // Longer than a silent connection is kept.
  await until('the shard has got there', () => probes > 7)
  t.match(shard, { isShared: false, outage: { cause: 'loading' } })
  t.equal(seen.reconnects, 0, 'an answer, whatever it says, comes by a connection that is alive')
  t.match(await hit('apk_1'), { number: 2, turn: { shared: false } })
  t.equal(seen.calls.length, 2, 'no hit is sent meanwhile')
  seen.probe = async () => clockOf(startMs)
  await until('it counts in Redis', () => shard.isShared)
  t.equal(shard.outage, null)
  t.strictSame(seen.outages, ['out_of_memory', null])
})

t.test('a connection that answers no probe is replaced', async (t) => {
  const { seen, shard } = open(t, { probe: () => new Promise(() => {}) })
  shard.goLocal(new Error('gone'))
  await until('the shard has got there', () => seen.reconnects > 0)
  t.pass('it was')
})

t.test('a new shard does not say that its server counts before it has', async (t) => {
  const { seen, shard, hit, called } = open(t, { probe: () => new Promise(() => {}) })
  t.strictSame([shard.isShared, shard.outage], [false, null], 'nor that it is down')
  const first = hit()
  await called(1)
  seen.calls[0]!.answer(1, 0)
  await first
  t.equal(shard.isShared, true)
})

t.test('a new shard whose server is not connected for a second counts locally, and says why', async (t) => {
  const { seen, shard, hit } = open(t)
  seen.fault = Object.assign(new Error('self-signed certificate'), { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' })
  await until('the outage is seen', () => shard.outage !== null)
  t.match(shard.outage, { cause: 'certificate', reason: 'self-signed certificate' })
  t.match(await hit(), { number: 1, turn: { shared: false } })
  t.equal(seen.calls.length, 0)
})

t.test('an outage tells each cause that lasts once', async (t) => {
  const { seen, shard } = open(t)
  seen.fault = Object.assign(new Error('no route'), { code: 'EHOSTUNREACH' })
  shard.goLocal(new Error('not connected'))
  const faults = ['ECONNREFUSED', 'ENOTFOUND', 'ECONNREFUSED', 'ENOTFOUND', 'CERT_HAS_EXPIRED']
  for (const code of faults) {
    seen.fault = Object.assign(new Error(code), { code })
    const { cause } = shard.outage!
    await until('the outage is seen', () => shard.outage!.cause !== cause)
  }
  t.strictSame(seen.outages, ['unreachable', 'unknown_host', 'certificate'])
})

t.test('a key that finds no room is shed while counting is local', async (t) => {
  const { shard, hit } = open(t, { lastCounts: createMinuteCounts(1) })
  shard.goLocal(new Error('gone'))
  t.equal((await hit('apk_1')).number, 1)
  await t.rejects(hit('apk_2'), { message: 'shed' })
  t.equal((await hit('apk_1')).number, 2)
})

t.test(
  'hits that waited for Redis in vain and find no room are told that they are not counted',
  async (t) => {
    const { shard, hit } = open(t, { lastCounts: createMinuteCounts(1) })
    const hits = [hit('apk_1'), hit('apk_2'), hit('apk_2'), hit('apk_1')]
    shard.goLocal(new Error('gone'))
    const numbers = (await Promise.all(hits)).map(({ number }) => number)
    t.strictSame([numbers[0], numbers[3]], [1, 2])
    t.ok(numbers[1]! < 1 && numbers[2]! < 1, `${numbers}`)
  },
)
