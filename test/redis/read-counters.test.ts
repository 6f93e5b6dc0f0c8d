// Reading the counters of a Redis: what it costs there, what it skips, and what is left when Redis
// is down or refuses.
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises'
import { install } from '@sinonjs/fake-timers'
import type { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { createMinuteCounts } from '../../src/memory/minute-counts.ts'
import { readCounters } from '../../src/redis/read-counters.ts'
import { pauseMs, scanServer } from '../../src/redis/scan-server.ts'
import type { Servers } from '../../src/redis/servers.ts'
import type { Shard } from '../../src/redis/shard.ts'
import { minuteOf } from '../../src/rules/window.ts'
import type { KeyCount } from '../../src/stores.ts'
import { hitAll, inOneMinute, newKeyIds } from '../memory/counter-suite.ts'
import { startPrivateRedis } from '../services/index.ts'
import { commands } from './acl.ts'
import { countAt, observe, soonDown } from './counters.ts'

const server = await startPrivateRedis(t)
const counting: Shard['server'] = { mode: 'shared', outage: null }
const silent: Shard['server'] = { mode: 'local', outage: null }

t.test('now is the clock that is furthest behind: the minute of every server has begun', async (t) => {
  const clocks: Record<string, string[]> = { ahead: ['160', '0'], behind: ['100', '999500'] }
  const counters = readCounters({
    client: {} as never,
    servers: { connection: (name: string) => ({ time: async () => clocks[name] }) } as unknown as Servers,
    shards: new Map(Object.keys(clocks).map((name) => [name, { server: counting } as Shard])),
    shardOf: () => ({}) as Shard,
    lastCounts: createMinuteCounts(),
    patience: 1,
  })
  t.equal(await counters.now(), 100_999)
})

t.test('where a server does not count, what is known here counts, even if it answers', async (t) => {
  const lastCounts = createMinuteCounts()
  lastCounts.add('apk_a', 5, 3)
  const shard = { server: silent, nowMs: () => 300_000, doubt() {} } as Shard
  const counters = readCounters({
    client: { mget: async () => ['7'] } as never,
    servers: { connection: () => ({ time: async () => ['100', '0'] }) } as unknown as Servers,
    shards: new Map([['one', shard]]),
    shardOf: () => shard,
    lastCounts,
    patience: 1,
  })
  t.strictSame(await counters.countsOf(['apk_a'], [5, 4]), { counts: [3, 0], mode: 'local' })
  t.equal(await counters.now(), 300_000)
})

t.test('where a server counts, a count is never less than what is known here', async (t) => {
  const lastCounts = createMinuteCounts()
  lastCounts.add('apk_a', 5, 3)
  lastCounts.add('apk_a', 4, 3)
  const shard = { server: counting } as Shard
  const counters = readCounters({
    // It has lost its data within minute 5.
    client: { mget: async () => ['1', '7', null] } as never,
    servers: {} as Servers,
    shards: new Map([['one', shard]]),
    shardOf: () => shard,
    lastCounts,
    patience: 1,
  })
  t.strictSame(await counters.countsOf(['apk_a'], [5, 4, 3]), { counts: [3, 7, 0], mode: 'shared' })
})

t.test('the counts of several keys are one call, and each is no less than what is known here', async (t) => {
  const calls: string[][] = []
  const values: Record<string, string> = { 'rl:{apk_a}:5': '1', 'rl:{apk_b}:5': '2', 'rl:{apk_b}:4': '3' }
  values['rl:{apk_a}:4'] = 'not a count'
  const lastCounts = createMinuteCounts()
  lastCounts.add('apk_b', 5, 9)
  const shard = { server: counting } as Shard
  const counters = readCounters({
    client: {
      async mget(names: string[]) {
        calls.push(names)
        return names.map((name) => values[name] ?? null)
      },
    } as never,
    servers: {} as Servers,
    shards: new Map([['one', shard]]),
    shardOf: (keyId) => (keyId === 'apk_a' ? shard : ({ server: silent } as Shard)),
    lastCounts,
    patience: 1,
  })
  t.strictSame(await counters.countsOf(['apk_a', 'apk_b'], [5, 4]), { counts: [1, 0, 9, 3], mode: 'shared' })
  t.strictSame(calls, [['rl:{apk_a}:5', 'rl:{apk_a}:4', 'rl:{apk_b}:5', 'rl:{apk_b}:4']])
})

/** Counters of one server, of which this instance has seen one. */
function readOne(
  shard: Partial<Shard>,
  { redis, patience = 1 }: { redis: object | null; patience?: number },
) {
  const seen = { scanned: 0 }
  const lastCounts = createMinuteCounts()
  lastCounts.add('apk_a', 5, 3)
  const counters = readCounters({
    client: redis as Redis,
    servers: { connection: () => redis ?? undefined, fault: () => new Error('full') } as unknown as Servers,
    shards: new Map([['one', shard as Shard]]),
    shardOf: () => shard as Shard,
    lastCounts,
    patience,
    onScanned: (counters) => (seen.scanned += counters),
  })
  return { counters, seen }
}

/** A server with two counters, which takes 10 ms for each as its clock says. */
function twoSlices(taking: () => Promise<unknown>) {
  let asked = 0
  return {
    time: async () => (asked++ % 2 === 0 ? ['0', '995000'] : ['1', '5000']),
    async eval(_lua: string, _keys: number, from: string) {
      await taking()
      return [from === '0' ? '1' : '0', 1, '', []]
    },
  }
}

function setClock(t: Test) {
  const clock = install({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  t.teardown(() => clock.uninstall())
  const after = <T>(ms: number, value: T) => new Promise<T>((done) => clock.setTimeout(() => done(value), ms))
  return { clock, after }
}

t.test('a patient reader waits longer for a count', async (t) => {
  const { clock, after } = setClock(t)
  const redis = { mget: () => after(150, ['7']) }
  const { counters } = readOne({ server: counting }, { redis, patience: 2 })
  const reading = counters.countsOf(['apk_a'], [5])
  await clock.tickAsync(150)
  t.strictSame(await reading, { counts: [7], mode: 'shared' })
})

t.test('a patient reader waits longer for a slice', async (t) => {
  const { clock, after } = setClock(t)
  const redis = twoSlices(() => after(1500, null))
  const { counters } = readOne({ server: counting }, { redis, patience: 2 })
  let isDone = false
  const scanning = counters.scan(5, () => {}).finally(() => (isDone = true))
  while (!isDone) {
    await clock.tickAsync(100)
    await nextTurn()
  }
  t.match(await scanning, { complete: true, scanned: 2 })
})

for (const share of [undefined, 0.05, () => 0.05])
  t.test(`a scan uses 5 % of a server (${share})`, async (t) => {
    const { counters, seen } = readOne({ server: counting }, { redis: twoSlices(() => pause(10)) })
    const startMs = performance.now()
    const scan = await counters.scan(5, () => {}, { share })
    t.match(scan, { complete: true, scanned: 2, mode: 'shared', fault: null })
    // After the last slice there is nothing to wait for. A timer may be early by a millisecond.
    t.ok(performance.now() - startMs >= 10 / 0.05 - 5)
    t.equal(seen.scanned, 2)
  })

t.test('a server that does not count, or has no connection, is not scanned', async (t) => {
  for (const [shard, redis, fault] of [
    [{ server: silent }, { time: () => t.fail('asked') }, { cause: 'other', reason: 'full' }],
    [{ server: counting }, null, { cause: 'other', reason: 'full' }],
    [
      { server: { mode: 'local', outage: { cause: 'refused', reason: 'no' } } },
      null,
      { cause: 'refused', reason: 'no' },
    ],
  ] as const)
    await t.test(fault.reason, async (t) => {
      const { counters } = readOne(shard, { redis })
      const seen: KeyCount[] = []
      const scan = await counters.scan(5, (slice) => void seen.push(...slice))
      t.strictSame(scan, { complete: false, scanned: 1, mode: 'local', fault })
      t.strictSame(seen, [{ keyId: 'apk_a', count: 3 }])
    })
})

t.test('with one of two servers down, what the other one has is counted once', async (t) => {
  const redis = { time: async () => ['0', '0'], eval: async () => ['0', 1, 'apk_a 2', []] }
  const [up, down] = [{ server: counting }, { server: silent }] as [Shard, Shard]
  const lastCounts = createMinuteCounts()
  for (const keyId of ['apk_a', 'apk_b']) lastCounts.add(keyId, 5, 3)
  const { scan } = readCounters({
    client: redis as unknown as Redis,
    servers: { connection: () => redis, fault: () => new Error('full') } as unknown as Servers,
    shards: new Map([
      ['up', up],
      ['down', down],
    ]),
    shardOf: (keyId) => (keyId === 'apk_a' ? up : down),
    lastCounts,
    patience: 1,
  })
  const seen: KeyCount[] = []
  t.match(await scan(5, (slice) => void seen.push(...slice)), { mode: 'local', scanned: 2 })
  t.strictSame(
    seen.map(({ keyId, count }) => `${keyId} ${count}`),
    ['apk_a 2', 'apk_b 3', 'apk_a 3'],
  )
})

/** A server without a clock that advances: each slice is this many counters, and the last one has cursor 0. */
const serverOf = (slices: string[][], onSlice = () => {}) => {
  let next = 0
  return {
    time: async () => ['100', '0'],
    async eval() {
      const words = slices[next++]!
      onSlice()
      const cursor = next === slices.length ? '0' : String(next)
      return [cursor, words.length / 2, words.join(' '), []]
    },
  } as unknown as Redis
}
const slices = [['apk_a', '1'], [], ['apk_b', '2']]
const readAlone = async () => null

t.test('a scan that takes no time of the server does not wait', async (t) => {
  const seen: KeyCount[] = []
  let visits = 0
  const visit = (slice: KeyCount[]) => {
    visits++
    seen.push(...slice)
  }
  // A millisecond would be a wait of 10 s.
  const settings = { minute: 5, share: 1e-6, timeoutMs: 60_000, visit, readAlone }
  const startMs = performance.now()
  t.equal(await scanServer(serverOf(slices), settings), null)
  t.ok(performance.now() - startMs < 10_000)
  t.strictSame(seen, [
    { keyId: 'apk_a', count: 1 },
    { keyId: 'apk_b', count: 2 },
  ])
  t.equal(visits, 2, 'none without a counter')
})

t.test('the time that a slice took counts as waited', async (t) => {
  const clock = install({ toFake: ['performance'] })
  t.teardown(() => clock.uninstall())
  const usedMs = 1e8
  const server = serverOf(slices, () => void clock.tick(2 * usedMs))
  let asked = 0
  const redis = Object.assign(server, { time: async () => [String((asked++ * usedMs) / 1000), '0'] })
  // With half of the server, there is nothing left to wait for. Otherwise it would be 10 s.
  const settings = { minute: 5, share: 0.5, timeoutMs: 60_000, visit() {}, readAlone }
  const startMs = Date.now()
  t.equal(await scanServer(redis, settings), null)
  t.ok(Date.now() - startMs < 10_000)
  t.equal(performance.now(), slices.length * 2 * usedMs)
})

t.test('a server that is held up once does not hold up the scan for minutes', async (t) => {
  t.equal(pauseMs(1, 2, 0.0025), 398)
  t.equal(pauseMs(500, 501, 0.0025), 10_000)
  t.equal(pauseMs(10, 20, 0.5), 0)
})

t.test('a slice that arrives after the signal is not visited', async (t) => {
  const stop = new AbortController()
  const redis = serverOf(slices, () => stop.abort())
  const visit = () => void t.fail('visited')
  const settings = { minute: 5, share: 1, timeoutMs: 60_000, visit, readAlone, signal: stop.signal }
  t.equal(await scanServer(redis, settings), null)
})

if (server) {
  const redis = observe(t, server.url)

  t.test('a scan uses its share of the server and no more', async (t) => {
    const { counter, untilShared } = countAt(t, server.url)
    await untilShared()
    await hitAll(counter, newKeyIds(4000))
    // The first hits are an EVAL too, which a busy machine may have made slow enough for the log.
    await redis.slowlog('RESET')
    await redis.config('SET', 'slowlog-max-len', 10_000)
    await redis.config('SET', 'slowlog-log-slower-than', 0)
    const startedMs = performance.now()
    const share = 0.01
    await counter.scan(minuteOf(await counter.now()), () => {}, { share })
    const tookMs = performance.now() - startedMs
    await redis.config('SET', 'slowlog-log-slower-than', -1)
    const log = (await redis.slowlog('GET', 10_000)) as [
      id: number,
      s: number,
      usec: number,
      words: string[],
    ][]
    // The newest first.
    const [, ...slices] = log.filter(([, , , words]) => words[0] === 'eval').map(([, , usec]) => usec / 1000)
    t.ok(slices.length >= 8, `${slices.length} slices`)
    const usedMs = slices.reduce((sum, ms) => sum + ms, 0)
    // After the last slice there is nothing to wait for. A timer may be early by a millisecond.
    t.ok(tookMs > (usedMs / share) * 0.9, `${tookMs} ms for ${usedMs} ms of Redis before the last slice`)
  })

  t.test('a scan skips what only looks like a counter', async (t) => {
    const { counter, untilShared } = countAt(t, server.url)
    await untilShared()
    const minute = minuteOf(await counter.now()) + 5
    const [sound, text, list, long] = newKeyIds(4)
    await redis.set(`rl:{${sound}}:${minute}`, 7)
    await redis.set(`rl:{${text}}:${minute}`, 'seven')
    await redis.rpush(`rl:{${list}}:${minute}`, '7')
    await redis.set(`rl:{${long}}:${minute}`, '1'.repeat(16))
    await redis.set(`rl:{apk_${'a'.repeat(101)}}:${minute}`, 7)
    await redis.set(`rl:{apk_a b}:${minute}`, 7)
    await redis.set(`rl:{${text}}:${minute + 1}`, 7)
    const seen: KeyCount[] = []
    t.match(await counter.scan(minute, (slice) => void seen.push(...slice)), { complete: true, scanned: 1 })
    t.strictSame(seen, [{ keyId: sound, count: 7 }])
    t.strictSame((await counter.countsOf([list!], [minute])).counts, [0])
  })

  t.test('a scan brings over only counts above the one asked for, and reads all', async (t) => {
    const { counter, untilShared } = countAt(t, server.url)
    await untilShared()
    const minute = minuteOf(await counter.now()) + 6
    const keyIds = newKeyIds(20)
    await redis.mset(keyIds.flatMap((keyId, i) => [`rl:{${keyId}}:${minute}`, i]))
    const seen = new Map<string, number>()
    let progress = 0
    const visit = (slice: KeyCount[], read: number) => {
      for (const { keyId, count } of slice) seen.set(keyId, count)
      progress += read
    }
    t.match(await counter.scan(minute, visit, { above: () => 17 }), { complete: true, scanned: progress })
    t.ok(progress >= 20, 'some maybe twice')
    t.strictSame(seen, new Map([18, 19].map((count) => [keyIds[count], count])))
  })

  t.test('what Redis has lost since the last hit is read from what the instance knows', async (t) => {
    const { counter, untilShared } = countAt(t, server.url)
    await untilShared()
    const [kept, lost, ofAnother] = newKeyIds(3) as [string, string, string]
    const counted = await inOneMinute(() => hitAll(counter, [kept, lost, lost]))
    const minute = minuteOf(counted[0]!.turn.nowMs)
    await redis.set(`rl:{${ofAnother}}:${minute}`, 3)
    const ofBoth = async (options = {}) => {
      const seen: KeyCount[] = []
      await counter.scan(minute, (slice) => void seen.push(...slice), options)
      return seen.filter(({ keyId }) => [kept, lost].includes(keyId)).map(({ count }) => count)
    }
    const before = await ofBoth()
    t.strictSame(before.sort(), [1, 2], 'nothing is read twice if nothing is lost')
    await redis.del(`rl:{${lost}}:${minute}`)
    t.ok((await ofBoth()).includes(2))
    t.strictSame(await ofBoth({ above: () => 0 }), [1], 'not for the dashboard, which looks every second')
  })

  t.test('a user without SCAN counts, and a scan shows what the instance knows, and why', async (t) => {
    const allowed = commands.filter((command) => command !== '+scan')
    await redis.call('ACL', 'SETUSER', 'counting', 'on', '>secret', '~rl:*', ...allowed)
    const { counter, outages, untilShared } = countAt(t, server.url.replace('//', '//counting:secret@'))
    await untilShared()
    const [own] = newKeyIds(1)
    const counted = await inOneMinute(() => hitAll(counter, [own!, own!]))
    const seen: KeyCount[] = []
    const scan = await counter.scan(minuteOf(counted[0]!.turn.nowMs), (slice) => void seen.push(...slice))
    t.match(scan, { complete: false, scanned: 1, mode: 'local', fault: { cause: 'no_permission' } })
    t.strictSame(seen, [{ keyId: own, count: 2 }])
    t.strictSame([counter.mode(), outages], ['shared', []])
  })

  t.test('while Redis is down, an instance reads what it knows, by the clock of Redis', async (t) => {
    let nowMs = Date.now() + 3_600_000
    const { counter, untilShared, untilDown } = countAt(t, server.url, {
      patience: soonDown,
      now: () => nowMs,
    })
    await untilShared()
    const [own] = newKeyIds(1)
    const counted = await inOneMinute(() => hitAll(counter, [own!, own!]))
    const minute = minuteOf(counted[0]!.turn.nowMs)
    await server.freeze()
    const halfway: KeyCount[] = []
    const failing = counter.scan(minute, (slice) => void halfway.push(...slice))
    await hitAll(counter, [own!])
    await untilDown()
    t.match(await failing, { complete: false, mode: 'local', fault: { cause: 'timeout' } })
    t.match(await counter.countsOf([own!], [minute]), { mode: 'local' })
    nowMs += 1000
    t.ok(Math.abs((await counter.now()) - Date.now() - 1000) < 60_000)
    await server.thaw()
  })
}
