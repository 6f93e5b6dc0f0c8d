// What is stored of each minute: every request once, whatever the instances, restarts and repeated
// passes; and where requests are missing, the minute is marked.
import { syncBuiltinESMExports } from 'node:module'
import { setImmediate as nextTurn } from 'node:timers/promises'
import FakeTimers from '@sinonjs/fake-timers'
import t from 'tap'
import type { CountingMode } from '../../schemas/health.ts'
import { createMemoryCounter, type MemoryCounterOptions } from '../../src/memory/counter.ts'
import { minuteOf } from '../../src/rules/window.ts'
import {
  type Counter,
  type KeyCount,
  Unavailable,
  type UsageReport,
  type UsageStore,
} from '../../src/stores.ts'
import { type Collector, type CollectorOptions, createCollector } from '../../src/usage/collector.ts'
import { inOneMinute, resetOf } from '../api/one-minute.ts'
import { type Answer, type Instance, makeCaller, startInstance } from '../instance.ts'
import { hits } from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { openDatabase, useServices } from '../services/index.ts'

const services = await useServices(t)
const sql = openDatabase(t, services.databaseUrl)
const instances = await Promise.all([0, 1, 2].map(() => startInstance(t, services)))
const { usage } = instances[0]!.service.stores
const redis = services.connectRedis()
t.teardown(() => redis.disconnect())

interface Seen {
  incomplete: number[]
  skipped: [number, number][]
  faults: (string | null)[]
  rollUpFaults: (string | null)[]
}

/** A collector that finds it that late. Its own reports and claims are those of one more instance. */
function collectorAt(
  nowMs: number | (() => number),
  counter: Counter,
  options: Partial<CollectorOptions> = {},
): Collector & Seen {
  const now = async () => (typeof nowMs === 'number' ? nowMs : nowMs())
  const incomplete: number[] = []
  const skipped: [number, number][] = []
  const faults: (string | null)[] = []
  const rollUpFaults: (string | null)[] = []
  const collector = createCollector({
    counter: { ...counter, now },
    usage,
    onIncomplete: (minute) => incomplete.push(minute),
    onSkipped: (first, last) => skipped.push([first, last]),
    onFault: (error) => faults.push(error?.message ?? null),
    onRollUpFault: (error) => rollUpFaults.push(error?.message ?? null),
    ...options,
  })
  return { ...collector, incomplete, skipped, faults, rollUpFaults }
}
/** A counter in memory that scans in another mode. As Redis, it outlives who reads it. */
function scannedAs(mode: CountingMode, options: MemoryCounterOptions): Counter {
  const { restore: _, ...counter } = createMemoryCounter(options)
  return { ...counter, scan: async (...args) => ({ ...(await counter.scan(...args)), mode }) }
}
const counterOf = ({ service }: Instance) => service.stores.counter
/** The collectors of the instances, three seconds after the minute. */
const collectorsAfter = (minute: number, of = instances) =>
  of.map((instance) => collectorAt((minute + 1) * 60_000 + 3000, counterOf(instance)))
const tickAll = (collectors: Collector[]) => Promise.all(collectors.map((one) => one.tick()))

const storedIn = async (minute: number, ids: string[]) =>
  Object.fromEntries(
    (
      await sql`select key_id, requests, limited from key_usage
        where starts_at = to_timestamp(${minute * 60}) and key_id in ${sql(ids)}`
    ).map(({ key_id, requests, limited }) => [key_id, { requests, limited }]),
  )
const incompleteIn = async (minute: number) => {
  const range = { step: 'minute', sinceS: minute * 60, untilS: minute * 60 + 60 } as const
  const { incomplete } = await usage.read({ id: 'apk_1', createdAt: 0 }, range, {
    nowS: minute * 60 + 120,
    live: [],
    isLocal: false,
  })
  return incomplete.length > 0
}

/** As if nobody had sent or stored anything yet. */
async function forget() {
  await redis.flushdb()
  await sql`truncate key_usage, usage_minutes`
  const minute = minuteOf(await counterOf(instances[0]!).now())
  for (const instance of instances) for (const one of [minute - 1, minute]) counterOf(instance).takeHits(one)
}

const send = (instance: Instance, token: string, count: number) =>
  Promise.all(Array.from({ length: count }, () => instance.ask('GET', '/v1/verify', { token })))

t.test('every request on three instances is stored once, one of them restarted in between', async (t) => {
  const { keys, minute, left } = await inOneMinute(async () => {
    await forget()
    const [restarting, first, second] = await Promise.all([
      startInstance(t, services),
      ...instances.slice(0, 2),
    ])
    const keys = [
      await makeCaller(first!, { rateLimitRpm: 10 }),
      await makeCaller(first!),
      await makeCaller(first!),
    ]
    const answers: Answer[] = []
    for (const { token } of keys)
      for (const one of [restarting!, first!, second!]) answers.push(...(await send(one, token, 7)))
    await restarting!.close()
    const left = [await startInstance(t, services), first!, second!]
    answers.push(...(await send(left[0]!, keys[0]!.token, 4)))
    const minute = resetOf(answers[0]!) / 60 - 1
    return { answers, keys, minute, left }
  })
  const expected = {
    [keys[0]!.id]: { requests: 25, limited: 15 },
    [keys[1]!.id]: { requests: 21, limited: 0 },
    [keys[2]!.id]: { requests: 21, limited: 0 },
  }
  const ids = Object.keys(expected)
  await tickAll(collectorsAfter(minute, left))
  t.strictSame(await storedIn(minute, ids), expected)
  const [{ reported }] = (await sql`
    select reported::int from usage_minutes where starts_at = to_timestamp(${minute * 60})`) as unknown as [
    { reported: number },
  ]
  t.equal(reported, 67, 'the one that stopped has reported too')
  // Until all have reported, what one of them found is not known to be complete.
  await tickAll(collectorsAfter(minute, [...left, instances[2]!]))
  t.equal(await incompleteIn(minute), false)

  await sql`update usage_minutes set is_done = false where starts_at = to_timestamp(${minute * 60})`
  await tickAll(collectorsAfter(minute, left))
  t.strictSame(await storedIn(minute, ids), expected, 'another pass changes nothing')
  t.equal(await incompleteIn(minute), false)
})

t.test('requests that Redis has lost are not invented: their minute is incomplete', async (t) => {
  const [instance] = instances as [Instance]
  const { key, minute } = await inOneMinute(async () => {
    await forget()
    const key = await makeCaller(instance)
    const before = await send(instance, key.token, 5)
    const minute = resetOf(before[0]!) / 60 - 1
    await redis.del(`rl:{${key.id}}:${minute}`)
    const answers = [...before, ...(await send(instance, key.token, 2))]
    return { answers, key, minute }
  })
  // Another instance, which knows nothing of the key, stores the minute before this one has reported.
  const [first, other] = collectorsAfter(minute, [instance, await startInstance(t, services)])
  await other!.tick()
  await sql`update usage_minutes set is_done = true where starts_at = to_timestamp(${minute * 60})`
  await first!.tick()
  t.strictSame(await storedIn(minute, [key.id]), { [key.id]: { requests: 2, limited: 0 } })
  t.equal(await incompleteIn(minute), true)
})

t.test('a loss is no loss if all instances report as many requests as are stored', async (t) => {
  await forget()
  const minute = minuteOf(Date.now()) - 30
  let nowMs = minute * 60_000 + 3000
  const now = () => nowMs
  const [killed, left] = [false, true].map((lacks) =>
    collectorAt(now, { ...scannedAs('shared', { now }), mayLackCounts: () => lacks }),
  ) as [ReturnType<typeof collectorAt>, ReturnType<typeof collectorAt>]
  await tickAll([killed, left])
  nowMs += 60_000
  await left.tick()
  t.strictSame(left.incomplete, [minute], 'the other one may have counted more than is stored')
  t.equal(await incompleteIn(minute), true)
  await killed.tick()
  t.equal(await incompleteIn(minute), false, 'it was only late')
  nowMs += 2000
  await left.tick()
  t.equal(await incompleteIn(minute), false)
})

t.test('a minute whose counters may have expired is stored, and incomplete', async (t) => {
  const [instance] = instances as [Instance]
  await forget()
  const key = await makeCaller(instance)
  const [answer] = await send(instance, key.token, 1)
  const minute = resetOf(answer!) / 60 - 1
  let nowMs = minute * 60_000 + 3000
  const late = collectorAt(() => nowMs, counterOf(instance))
  await late.tick()
  nowMs += 120_000
  await late.tick()
  t.strictSame(await storedIn(minute, [key.id]), { [key.id]: { requests: 1, limited: 0 } })
  t.strictSame(late.incomplete, [minute])
  t.equal(await incompleteIn(minute), true)
})

t.test('an instance that starts as a minute turns does not store the minute before the last', async (t) => {
  const [instance] = instances as [Instance]
  const nobodyStored = minuteOf(await counterOf(instance).now()) + 60
  let nowMs = (nobodyStored + 2) * 60_000 + 500
  const starting = collectorAt(() => nowMs, counterOf(instance))
  await starting.tick()
  nowMs += 2000
  await starting.tick()
  t.strictSame(starting.incomplete, [])
})

t.test('a pass uses at most a quarter of a core of Redis', async (t) => {
  // Not in the first two seconds of a minute, in which the last one may still change.
  const nowMs = Math.floor(Date.now() / 60_000) * 60_000 - 172_800_000 + 3000
  const shares: unknown[] = []
  const memory = createMemoryCounter({ now: () => nowMs })
  const scan: Counter['scan'] = (minute, visit, options) => {
    shares.push(options?.share)
    return memory.scan(minute, visit, options)
  }
  await collectorAt(nowMs, { ...memory, scan }).tick()
  t.strictSame(shares, [0.25])
})

/** A collector whose store takes everything, as far as the test has nothing of its own. */
function collectorOn(now: () => number, store: Partial<UsageStore>, counter: Partial<Counter> = {}) {
  const usage = {
    async report() {},
    claim: async () => 'claimed',
    async store() {},
    finish: async () => true,
    rollUp: async () => false,
    ...store,
  } as Partial<UsageStore> as UsageStore
  return collectorAt(now, { ...createMemoryCounter({ now }), ...counter }, { usage })
}

t.test('all hours and days that are over are rolled up, once a minute', async (t) => {
  let nowMs = 1000 * 60_000 + 3000
  const asked: number[] = []
  const begun: number[] = []
  const rollUp = async (nowS: number) => asked.push(nowS) < 4
  const report = async (minute: number, { unreported }: UsageReport) => {
    if (unreported === 1) begun.push(minute)
  }
  const collector = collectorOn(() => nowMs, { rollUp, report })
  await collector.tick()
  await collector.tick()
  t.strictSame([asked, begun], [[60_003, 60_003, 60_003, 60_003], [1000]])
  nowMs += 60_000
  await collector.tick()
  t.strictSame([asked.length, begun], [5, [1000, 1001]])
})

t.test('what Redis loses later does not touch a minute that is stored for good', async (t) => {
  let nowMs = 1000 * 60_000 + 3000
  let isLost = false
  const lacking: number[] = []
  const report = async (minute: number, { mayLackCounts }: UsageReport) => {
    if (mayLackCounts) lacking.push(minute)
  }
  const collector = collectorOn(() => nowMs, { report }, { mayLackCounts: () => isLost })
  await collector.tick()
  isLost = true
  nowMs += 60_000
  await collector.tick()
  t.strictSame(lacking, [1000], 'and not 999')
})

t.test('counts are stored some thousands at a time, each once', async (t) => {
  const stored: string[][] = []
  const ids = Array.from({ length: 12_000 }, (_, i) => `apk_${i}`)
  const scan: Counter['scan'] = async (_minute, visit) => {
    for (let from = 0; from < ids.length; from += 1000)
      await visit(
        ids.slice(from, from + 1000).map((keyId) => ({ keyId, count: 1 })),
        1000,
      )
    return { complete: true, scanned: ids.length, mode: 'shared', fault: null }
  }
  let storing = 0
  const store = async (_minute: number, counts: KeyCount[]) => {
    t.equal(storing++, 0, 'one statement at a time')
    stored.push(counts.map(({ keyId }) => keyId))
    await nextTurn()
    storing--
  }
  await collectorOn(() => 1001 * 60_000 + 3000, { store }, { scan }).tick()
  t.strictSame(
    stored.map(({ length }) => length),
    [5000, 5000, 2000],
  )
  t.strictSame(stored.flat(), ids)
})

t.test('a minute is stored two seconds after its end: clocks of servers may differ', async (t) => {
  let nowMs = 1001 * 60_000 + 3000
  const claimed: number[] = []
  const claim = async (minute: number) => {
    claimed.push(minute)
    return 'claimed' as const
  }
  const collector = collectorOn(() => nowMs, { claim })
  await collector.tick()
  for (const [ms, expected] of [
    [1999, [1000]],
    [2000, [1000, 1001]],
  ] as const) {
    nowMs = 1002 * 60_000 + ms
    await collector.tick()
    t.strictSame(claimed, expected)
  }
})

t.test('a clock that was hours ahead for a moment costs no minute after it', async (t) => {
  let nowMs = 1000 * 60_000 + 3000
  const seen = { begun: [] as number[], claimed: [] as number[], rolledUp: 0 }
  const collector = collectorOn(() => nowMs, {
    async report(minute, { unreported }) {
      if (unreported === 1) seen.begun.push(minute)
    },
    async claim(minute) {
      seen.claimed.push(minute)
      return 'claimed'
    },
    async rollUp() {
      seen.rolledUp++
      return false
    },
  })
  for (const minute of [1000, 1300, 1000, 1001]) {
    nowMs = minute * 60_000 + 3000
    seen.rolledUp = 0
    await collector.tick()
  }
  t.strictSame(seen, { begun: [1000, 1300, 1000, 1001], claimed: [999, 1298, 1299, 999, 1000], rolledUp: 1 })
})

t.test('a minute stored by a clock that was ahead is stored again when it is over', async (t) => {
  await forget()
  const minute = minuteOf(Date.now()) + 1
  let nowMs = minute * 60_000
  const counter = createMemoryCounter({ now: () => nowMs })
  const collector = collectorAt(() => nowMs, counter)
  const { id } = await makeCaller(instances[0]!)
  for (const requests of [1, 2]) {
    nowMs = minute * 60_000
    await collector.tick()
    await hits(counter, id, 1)
    nowMs += 63_000
    await collector.tick()
    t.strictSame(await storedIn(minute, [id]), { [id]: { requests, limited: 0 } })
  }
  t.equal(await incompleteIn(minute), false)
})

t.test('a single request is reported, even after a pause of two minutes', async (t) => {
  let nowMs = 1000 * 60_000 + 3000
  const reported = new Map<number, number>()
  const report = async (minute: number, { requests }: UsageReport) => void reported.set(minute, requests)
  const counter = createMemoryCounter({ now: () => nowMs })
  const collector = collectorOn(() => nowMs, { report }, counter)
  await collector.tick()
  await hits(counter, 'apk_1', 1)
  nowMs += 120_000
  await collector.tick()
  t.equal(reported.get(1000), 1)
})

t.test('an instance that stood still for longer reports its last minute as lacking counts', async (t) => {
  let nowMs = 1000 * 60_000 + 3000
  const reported: [number, UsageReport][] = []
  const report = async (...args: [number, UsageReport]) => void reported.push(args)
  const counter = createMemoryCounter({ now: () => nowMs })
  const collector = collectorOn(() => nowMs, { report }, counter)
  await collector.tick()
  await hits(counter, 'apk_1', 1)
  nowMs += 180_000
  reported.length = 0
  for (let n = 0; n < 2; n++) await collector.tick()
  t.strictSame(reported, [
    [1003, { requests: 0, unreported: 1, mayLackCounts: false }],
    [1000, { requests: 1, unreported: 0, mayLackCounts: true }],
  ])
})

t.test('a minute that others have stored is incomplete if one of them stood still in it', async (t) => {
  await forget()
  const minute = minuteOf(Date.now()) - 30
  let nowMs = minute * 60_000 + 3000
  const now = () => nowMs
  const [still, other] = [0, 1].map(() => collectorAt(now, scannedAs('shared', { now }))) as [
    ReturnType<typeof collectorAt>,
    ReturnType<typeof collectorAt>,
  ]
  await tickAll([still, other])
  nowMs += 60_000
  await other.tick()
  t.equal(await incompleteIn(minute), false, 'as if it had been killed')
  nowMs += 120_000
  await still.tick()
  t.equal(await incompleteIn(minute), true)
})

t.test('of a key that a scan visits twice, the higher count is stored', async (t) => {
  const stored: KeyCount[] = []
  const scan: Counter['scan'] = async (_minute, visit) => {
    for (const count of [5, 3]) await visit([{ keyId: 'apk_1', count }], 1)
    return { complete: true, scanned: 2, mode: 'shared', fault: null }
  }
  const store = async (_minute: number, counts: KeyCount[]) => void stored.push(...counts)
  await collectorOn(() => 1001 * 60_000 + 3000, { store }, { scan }).tick()
  t.strictSame(stored, [{ keyId: 'apk_1', count: 5 }])
})

t.test('counts of one instance alone make no whole minute', async (t) => {
  const finished: unknown[] = []
  const finish = async (minute: number, { whole, done }: { whole: boolean; done: boolean }) => {
    if (done) finished.push({ minute, whole })
    return whole
  }
  const scan: Counter['scan'] = async () => ({ complete: true, scanned: 0, mode: 'local', fault: null })
  let nowMs = 1001 * 60_000 + 3000
  const collector = collectorOn(() => nowMs, { finish }, { scan })
  await collector.tick()
  t.strictSame(finished, [], 'an instance that reaches Redis may still store it')
  nowMs += 60_000
  await collector.tick()
  t.strictSame(finished, [{ minute: 1000, whole: false }])
})

t.test('a minute whose counters may have expired while they were read is incomplete', async (t) => {
  const finished: unknown[] = []
  const finish: UsageStore['finish'] = async (minute, { whole, done }) => {
    finished.push({ minute, whole, done })
    return whole
  }
  let nowMs = 1001 * 60_000 + 3000
  const scan: Counter['scan'] = async () => {
    nowMs += 60_000
    return { complete: true, scanned: 0, mode: 'shared', fault: null }
  }
  await collectorOn(() => nowMs, { finish }, { scan }).tick()
  t.strictSame(finished, [{ minute: 1000, whole: false, done: true }])
})

t.test('an instance that cannot see the counts of the others releases the minute at once', async (t) => {
  for (const mode of ['local', 'memory'] as const) {
    await forget()
    const minute = minuteOf(Date.now() - 43_200_000)
    const keys = await Promise.all([0, 1].map(() => makeCaller(instances[0]!)))
    let nowMs = minute * 60_000 + 3000
    async function counting(keyId: string, count: number, mode: CountingMode) {
      const counter = scannedAs(mode, { now: () => minute * 60_000 })
      await hits(counter, keyId, count)
      return collectorAt(() => nowMs, counter)
    }
    const alone = await counting(keys[0]!.id, 2, mode)
    const other = await counting(keys[1]!.id, 3, 'shared')
    await tickAll([alone, other])
    nowMs += 60_000
    await alone.tick()
    nowMs += 14_999
    await alone.tick()
    await other.tick()
    const expected = {
      [keys[0]!.id]: { requests: 2, limited: 0 },
      [keys[1]!.id]: { requests: 3, limited: 0 },
    }
    t.strictSame(await storedIn(minute, Object.keys(expected)), expected, mode)
    t.equal(await incompleteIn(minute), false)
    t.equal(other.lagS(), 0)
    nowMs += 15_000
    await alone.tick()
    t.equal(alone.lagS(), 0, 'it has seen that the minute is stored')
  }
})

t.test('counts of two memories are stored soon, and incomplete', async (t) => {
  await forget()
  const minute = minuteOf(Date.now() - 43_200_000)
  const key = await makeCaller(instances[0]!)
  let nowMs = minute * 60_000 + 3000
  async function counting(count: number) {
    const counter = scannedAs('memory', { now: () => minute * 60_000 })
    await hits(counter, key.id, count)
    return collectorAt(() => nowMs, counter)
  }
  const both = [await counting(5), await counting(3)]
  await tickAll(both)
  for (const passedMs of [60_000, 15_000, 15_000]) {
    nowMs += passedMs
    await tickAll(both)
  }
  t.equal(await incompleteIn(minute), true)
  t.strictSame(
    both.map(({ lagS }) => lagS()),
    [0, 0],
  )
})

t.test('reports that wait for Postgres are those of the last day', async (t) => {
  let minute = 1000
  let isDown = true
  const reported: number[] = []
  const report = async (one: number) => {
    if (isDown) throw new Unavailable('down')
    reported.push(one)
  }
  const collector = collectorOn(() => minute * 60_000 + 3000, { report, claim: async () => 'taken' })
  for (; minute < 3000; minute++) await collector.tick()
  isDown = false
  await collector.tick()
  t.equal(reported.length, 1440)
  t.strictSame([reported[0], reported.at(-1)], [1561, 3000])
})

t.test('minutes that are past before anything can be stored are named once', async (t) => {
  let minute = 1000
  let isDown = false
  let claim: 'claimed' | 'taken' = 'claimed'
  const claimed: number[] = []
  const collector = collectorOn(() => minute * 60_000 + 3000, {
    async report() {
      if (isDown) throw new Unavailable('down')
    },
    async claim(one) {
      if (claim === 'claimed') claimed.push(one)
      return claim
    },
  })
  await collector.tick()
  for (isDown = true; minute < 1002; await collector.tick()) minute++
  isDown = false
  await collector.tick()
  t.strictSame([collector.skipped, claimed], [[], [999, 1000, 1001]], 'as long as counters live')
  for (const end of [1005, 1010]) {
    for (isDown = true; minute < end; await collector.tick()) minute++
    isDown = false
    claim = 'taken'
    await collector.tick()
    claim = 'claimed'
    await collector.tick()
  }
  const skipped = [
    [1002, 1002],
    [1005, 1007],
  ]
  t.strictSame([collector.skipped, claimed], [skipped, [999, 1000, 1001, 1003, 1004, 1008, 1009]])
})

t.test('what is counted while reports wait for Postgres adds up', async (t) => {
  let minute = 1000
  let isDown = true
  const reported = new Map<number, UsageReport>()
  const report = async (one: number, what: UsageReport) => {
    if (isDown) throw new Unavailable('down')
    reported.set(one, what)
  }
  const taken = [2, 3]
  const counter: Partial<Counter> = {
    // A batch that was under way as the minute ended is counted late.
    takeHits: (one) => (one === 1000 ? (taken.shift() ?? 0) : 0),
    mayLackCounts: (one) => one === 1000 && taken.length === 1,
  }
  const collector = collectorOn(() => minute * 60_000 + 3000, { report }, counter)
  await collector.tick()
  minute++
  await collector.tick()
  await collector.tick()
  isDown = false
  await collector.tick()
  t.strictSame(reported.get(1000), { requests: 5, unreported: 0, mayLackCounts: true })
})

t.test(
  'a minute that another instance has claimed is asked for again, also after the next one',
  async (t) => {
    let minute = 1000
    let isTaken = true
    const claimed: number[] = []
    const claim = async (one: number) => {
      const isOther = one === 1000 && isTaken
      if (!isOther) claimed.push(one)
      return isOther ? 'taken' : 'claimed'
    }
    const collector = collectorOn(() => (minute + 1) * 60_000 + 3000, { claim })
    await collector.tick()
    minute++
    await collector.tick()
    t.strictSame(claimed, [1001])
    isTaken = false
    await collector.tick()
    t.ok(claimed.includes(1000))
  },
)

t.test('a pass that was not finished is taken over, and then complete', async (t) => {
  const nowMs = Date.now() - 86_400_000
  const minute = minuteOf(nowMs)
  const callers = await Promise.all([0, 1].map(() => makeCaller(instances[0]!)))
  const ids = callers.map(({ id }) => id)
  const shared = scannedAs('shared', { now: () => nowMs })
  for (const id of ids) await hits(shared, id, 3)
  const after = (minute + 1) * 60_000 + 3000
  const failing: UsageStore = {
    ...usage,
    async store(minute, counts) {
      await usage.store(minute, counts.slice(0, 1))
      throw new Unavailable('gone')
    },
  }
  const first = collectorAt(after, shared, { usage: failing })
  await first.tick()
  await first.tick()
  t.strictSame(first.faults, ['gone'], 'is said once')
  t.equal(Object.keys(await storedIn(minute, ids)).length, 1)
  const second = collectorAt(after, shared)
  t.equal(second.lagS(), 0, 'it has not looked yet')
  const lookedMs = performance.now()
  await second.tick()
  t.equal(Object.keys(await storedIn(minute, ids)).length, 1, 'not while it is claimed')
  t.equal(await incompleteIn(minute), true)
  const lagS = second.lagS()
  t.ok(lagS >= 3 && lagS <= 3 + (performance.now() - lookedMs) / 1000, `which shows: ${lagS} s`)
  await sql`update usage_minutes set claimed_until = '-infinity' where starts_at = to_timestamp(${minute * 60})`
  await second.tick()
  const expected = { requests: 3, limited: 0 }
  t.strictSame(await storedIn(minute, ids), Object.fromEntries(ids.map((id) => [id, expected])))
  t.equal(await incompleteIn(minute), false)
  t.equal(second.lagS(), 0)
  await first.tick()
  t.strictSame(first.faults, ['gone', null])
})

t.test('a clean stop leaves no minute incomplete, whenever the next start comes', async (t) => {
  let nowMs = Math.floor(Date.now() / 60_000) * 60_000 - 7_200_000
  const minute = minuteOf(nowMs)
  const { id } = await makeCaller(instances[0]!)
  for (const pauseMs of [0, 60_000, 180_000, 0]) {
    nowMs += pauseMs
    const counter = createMemoryCounter({ now: () => nowMs })
    const collector = collectorAt(() => nowMs, counter)
    await collector.start()
    await collector.tick()
    await hits(counter, id, 1)
    await collector.close()
  }
  for (let one = minute; one <= minute + 5; one++)
    t.equal(await incompleteIn(one), false, `minute ${one - minute}`)
})

t.test('a process that is killed after a clean stop in the same minute leaves a mark', async (t) => {
  let nowMs = Math.floor(Date.now() / 60_000) * 60_000 - 10_800_000
  const minute = minuteOf(nowMs)
  const { id } = await makeCaller(instances[0]!)
  const counter = scannedAs('shared', { now: () => nowMs })
  const start = async () => {
    const collector = collectorAt(() => nowMs, counter)
    await collector.start()
    await collector.tick()
    t.teardown(() => collector.close())
    return collector
  }
  const first = await start()
  await hits(counter, id, 3)
  await first.close()
  t.equal(await incompleteIn(minute), false)
  await start()
  await hits(counter, id, 2)
  // It is killed here, and the next one starts when the counters have expired.
  nowMs += 180_000
  await start()
  t.strictSame(await storedIn(minute, [id]), { [id]: { requests: 3, limited: 0 } })
  t.equal(await incompleteIn(minute), true)
})

t.test('counting in memory continues after a clean stop, and a killed process leaves a mark', async (t) => {
  let nowMs = Math.floor(Date.now() / 60_000) * 60_000 - 3_600_000
  const minute = minuteOf(nowMs)
  const key = await makeCaller(instances[0]!)
  const start = async () => {
    const counter = createMemoryCounter({ now: () => nowMs })
    const collector = collectorAt(() => nowMs, counter)
    await collector.start()
    await collector.tick()
    t.teardown(() => collector.close())
    return { counter, collector }
  }
  const first = await start()
  await hits(first.counter, key.id, 3)
  await first.collector.close()
  const second = await start()
  const [next] = await hits(second.counter, key.id, 1)
  t.equal(next!.number, 4, 'the limit holds across the restart too')
  await hits(second.counter, key.id, 1)
  nowMs += 63_000
  await second.collector.tick()
  t.strictSame(await storedIn(minute, [key.id]), { [key.id]: { requests: 5, limited: 0 } })
  t.equal(await incompleteIn(minute), false)

  await hits(second.counter, key.id, 7)
  // It is killed here.
  const third = await start()
  t.equal(third.counter.known(minute).get(key.id), 5, 'the minute before is known')
  t.strictSame([minute, minute + 1].map(third.counter.mayLackCounts), [false, true])
  await hits(third.counter, key.id, 1)
  nowMs += 60_000
  await third.collector.tick()
  t.strictSame(third.collector.incomplete, [minute + 1])
  t.strictSame(await storedIn(minute + 1, [key.id]), { [key.id]: { requests: 1, limited: 0 } })
  t.equal(await incompleteIn(minute + 1), true)
  t.equal(await incompleteIn(minute), false)

  await hits(third.counter, key.id, 7)
  // It is killed here, and the next one starts when that minute is over.
  nowMs += 60_000
  const fourth = await start()
  t.strictSame([minute + 2, minute + 3].map(fourth.counter.mayLackCounts), [true, false])
  for (const waitedMs of [0, 15_000]) {
    nowMs += waitedMs
    await fourth.collector.tick()
    t.equal(await incompleteIn(minute + 2), true)
  }

  await hits(fourth.counter, key.id, 2)
  await fourth.collector.close()
  const fifth = await start()
  await hits(fifth.counter, key.id, 1)
  // It is killed here, in the minute that the fourth one has stored.
  const sixth = await start()
  nowMs += 60_000
  await sixth.collector.tick()
  t.strictSame(await storedIn(minute + 3, [key.id]), { [key.id]: { requests: 2, limited: 0 } })
  t.equal(await incompleteIn(minute + 3), true)
})

t.test('a stop as a minute turns reports and stores both', async (t) => {
  let nowMs = 1000 * 60_000 + 3000
  const reported = new Map<number, number>()
  let finished: unknown[] = []
  const counter = createMemoryCounter({ now: () => nowMs })
  const collector = collectorOn(
    () => nowMs,
    {
      report: async (minute, { requests }) => void (requests > 0 && reported.set(minute, requests)),
      async finish(minute, { done }) {
        finished.push([minute, done])
        return true
      },
    },
    counter,
  )
  await collector.tick()
  t.strictSame(finished.at(-1), [999, true])
  finished = []
  await hits(counter, 'apk_1', 2)
  nowMs += 60_000 - 3000
  await hits(counter, 'apk_1', 1)
  await collector.close()
  t.strictSame(
    [...reported],
    [
      [1000, 2],
      [1001, 1],
    ],
  )
  t.strictSame(finished, [
    [1000, false],
    [1001, false],
  ])
})

t.test('a report that is under way when it stops is made once', async (t) => {
  let goOn = () => {}
  const heldUp = new Promise<void>((resolve) => {
    goOn = resolve
  })
  let unreported = 0
  const report: UsageStore['report'] = async (_minute, more) => {
    unreported += more.unreported ?? 0
    await heldUp
  }
  const collector = collectorOn(() => 1000 * 60_000 + 3000, { report })
  void collector.start()
  await until('it reports', () => unreported === 1)
  const closed = collector.close()
  await nextTurn()
  goOn()
  await closed
  t.equal(unreported, 0, 'begun once, and ended once')
})

t.test('a stop stores no minute again that is stored for good', async (t) => {
  const finished: unknown[] = []
  const finish: UsageStore['finish'] = async (minute, { done }) => {
    finished.push([minute, done])
    return true
  }
  const collector = collectorOn(() => 1000 * 60_000 + 3000, { finish })
  await collector.tick()
  t.strictSame(finished.splice(0).at(-1), [999, true])
  await collector.close()
  t.strictSame(finished, [[1000, false]])
})

t.test('a start does not wait until the last minute is stored, but a stop does', async (t) => {
  const [instance] = instances as [Instance]
  await forget()
  const counter = counterOf(instance)
  const minute = minuteOf(await counter.now())
  const { id } = await makeCaller(instance)
  await redis.set(`rl:{${id}}:${minute}`, 5)
  let [isStarted, isScanning, goOn] = [false, false, () => {}]
  const heldUp = new Promise<void>((resolve) => {
    goOn = resolve
  })
  const scan: Counter['scan'] = async (...of) => {
    isScanning = true
    await heldUp
    return counter.scan(...of)
  }
  const finished: boolean[] = []
  const finish: UsageStore['finish'] = (one, how) => {
    finished.push(how.done)
    return usage.finish(one, how)
  }
  const options = { usage: { ...usage, finish } }
  const collector = collectorAt((minute + 1) * 60_000 + 3000, { ...counter, scan }, options)
  void collector.start().then(() => {
    isStarted = true
  })
  t.teardown(goOn)
  await until('it has started while it scans', () => isStarted && isScanning)
  const closed = collector.close()
  goOn()
  await closed
  t.strictSame(await storedIn(minute, [id]), { [id]: { requests: 5, limited: 0 } })
  t.strictSame(finished, [true, false], 'first the last minute, then this one')
})

t.test('the collector looks every two seconds and when a minute begins, until it is closed', async (t) => {
  const clock = FakeTimers.install({
    shouldClearNativeTimers: true,
    toFake: ['setTimeout', 'clearTimeout', 'performance'],
  })
  t.teardown(() => clock.uninstall())
  const looks: number[] = []
  const { start, close } = collectorOn(
    () => 1000 * 60_000 + 55_000 + clock.now,
    { report: async () => void looks.push(clock.now) },
    { takeHits: () => 1 },
  )
  await start()
  await clock.tickAsync(6999)
  await close()
  await clock.tickAsync(10_000)
  t.strictSame([...new Set(looks)], [0, 2000, 4000, 5000, 6999], 'and once at its end')
})

t.test('minutes begin and end on time while one is stored and hours are rolled up', async (t) => {
  let nowMs = 1000 * 60_000 + 3000
  const reported = new Map<number, number>()
  const collector = collectorOn(() => nowMs, {
    report: async (minute, { unreported = 0 }) =>
      void reported.set(minute, unreported + (reported.get(minute) ?? 0)),
    claim: () => new Promise(() => {}),
    rollUp: () => new Promise(() => {}),
  })
  for (let minutes = 0; minutes < 5; minutes++) {
    void collector.tick()
    await nextTurn()
    nowMs += 60_000
  }
  t.strictSame(Object.fromEntries(reported), { 1000: 0, 1001: 0, 1002: 0, 1003: 0, 1004: 1 })
})

t.test('a fault is reported at once, while other work is still waiting', async (t) => {
  const collector = collectorOn(() => 1000 * 60_000 + 3000, {
    claim: () => Promise.reject(new Unavailable('gone')),
    rollUp: () => new Promise(() => {}),
  })
  void collector.tick()
  await nextTurn()
  t.strictSame(collector.faults, ['gone'])
})

t.test('a fault of rolling up hides none of storing, and shows how old it is', async (t) => {
  let minute = 1000
  let [mayRollUp, mayStore] = [false, true]
  const collector = collectorOn(
    () => minute * 60_000 + 3000,
    {
      async rollUp() {
        if (!mayRollUp) throw new Unavailable('no roll-ups')
        return false
      },
      async store() {
        if (!mayStore) throw new Unavailable('no storing')
      },
    },
    {
      scan: async (_minute, visit) => {
        await visit([{ keyId: 'apk_1', count: 1 }], 1)
        return { complete: true, scanned: 1, mode: 'shared', fault: null }
      },
    },
  )
  const overdueS = () => Math.floor(collector.rollUpLagS())
  t.equal(overdueS(), 0, 'it has not looked yet')
  await collector.tick()
  await collector.tick()
  t.strictSame([collector.faults, collector.rollUpFaults, overdueS()], [[], ['no roll-ups'], 3])
  minute += 60
  mayStore = false
  await collector.tick()
  t.strictSame([collector.faults, overdueS()], [['no storing'], 3603])
  mayRollUp = true
  await collector.tick()
  t.strictSame([collector.rollUpFaults, overdueS()], [['no roll-ups', null], 0])
  mayStore = true
  await collector.tick()
  t.strictSame(collector.faults, ['no storing', null])
  mayRollUp = false
  minute -= 30
  await collector.tick()
  t.equal(overdueS(), 3, 'its clock was ahead')
})

t.test('what fails after a stop is not reported', async (t) => {
  let fail: ((error: Error) => void) | undefined
  const rollUp = () =>
    new Promise<boolean>((_, reject) => {
      fail = reject
    })
  const collector = collectorOn(() => 1000 * 60_000 + 3000, { rollUp })
  const ticked = collector.tick()
  await until('it rolls up', () => fail !== undefined)
  await collector.close()
  fail!(new Unavailable('closed'))
  await ticked
  t.strictSame([...collector.faults, ...collector.rollUpFaults], [])
})

t.test('a stop waits no longer than 5 s for servers that do not answer', async (t) => {
  const clock = FakeTimers.install({ shouldClearNativeTimers: true, toFake: ['setTimeout', 'clearTimeout'] })
  // `node:timers/promises` too.
  syncBuiltinESMExports()
  t.teardown(() => {
    clock.uninstall()
    syncBuiltinESMExports()
  })
  let ending: AbortSignal | undefined
  const scan: Counter['scan'] = (_minute, _visit, options) => {
    ending = options?.signal
    return new Promise(() => {})
  }
  const collector = collectorOn(() => 1001 * 60_000 + 3000, { claim: async () => 'taken' }, { scan })
  await collector.tick()
  let isClosed = false
  void collector.close().then(() => {
    isClosed = true
  })
  await clock.tickAsync(4999)
  t.equal(isClosed, false)
  t.ok(ending, 'its scan ends then, too')
  await clock.tickAsync(1)
  t.equal(isClosed, true)
})
