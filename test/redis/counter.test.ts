// The counter in Redis: the conformance suite, and what is its own while Redis is there.
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { createRedisCounter, type RedisCounterOptions } from '../../src/redis/counter.ts'
import { newId } from '../../src/rules/id.ts'
import type { Counter } from '../../src/stores.ts'
import { ascending, counterSuite, hit, hits, inOneMinute, numbersOf, upTo } from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { startPrivateRedis, useServices } from '../services/index.ts'
import { countOn, impatient, observe, patient } from './counters.ts'

const services = await useServices(t)
const redis = services.connectRedis()

async function open(t: Test, options: Partial<RedisCounterOptions> = {}): Promise<Counter> {
  const client = services.connectRedis(impatient)
  await until('Redis is connected', () => client.status === 'ready')
  const counter = createRedisCounter({ client, patience: patient, ...options })
  t.teardown(() => counter.close())
  return counter
}

counterSuite(t, (t, count) => Promise.all(upTo(count).map(() => open(t))))

const clockMs = async (redis: Redis) => {
  const [s, us] = await redis.time()
  return Number(s) * 1000 + Number(us) / 1000
}

/** Redis's own minute: what its counters are named by. */
const minuteOf = async (redis: Redis) => Math.floor(Number((await redis.time())[0]) / 60)

t.test('instances share one count', async (t) => {
  const counters = [await open(t), await open(t), await open(t)]
  const counted = await inOneMinute(async () => {
    const keyId = newId('apk_')
    const waiting = []
    for (let turn = 0; turn < 20; turn++) {
      for (const counter of counters) waiting.push(...upTo(5).map(() => hit(counter, keyId)))
      await nextTurn()
    }
    return Promise.all(waiting)
  })
  t.strictSame(numbersOf(counted).sort(ascending), upTo(300))
})

t.test('a version raised by one instance is seen by the next hit of another', async (t) => {
  const [changing, counting] = [await open(t), await open(t)]
  const keyId = newId('apk_')
  for (const version of [2, 3, 4]) {
    t.equal(await changing.raise([{ keyId, version }]), true)
    t.match(await hit(counting, keyId), { version, turn: { shared: true } })
  }
})

t.test("the window is that of Redis's clock, whatever the instance's own says", async (t) => {
  const counter = await open(t, { now: () => 0 })
  const counted = await inOneMinute(
    async () => {
      const keyId = newId('apk_')
      const minute = await minuteOf(redis)
      await redis.set(`rl:{${keyId}}:${minute - 1}`, 50)
      await redis.set(`rl:{${keyId}}:${minute}`, 7)
      await redis.set(`rl:{${keyId}}:${minute + 1}`, 90)
      const [timeS] = await redis.time()
      const answer = await hit(counter, keyId)
      t.ok(answer.turn.nowMs >= Number(timeS) * 1000 && answer.turn.nowMs <= (await clockMs(redis)))
      return [answer]
    },
    () => minuteOf(redis),
  )
  t.equal(counted[0]!.number, 8)
})

t.test('the hits of a turn go as one call, and those of one key as one increment', async (t) => {
  const batches: [number, number][] = []
  const counter = await open(t, { onBatch: (hits, keys) => batches.push([hits, keys]) })
  const keyIds = upTo(20).map(() => newId('apk_'))
  await Promise.all(upTo(500).map((i) => hit(counter, keyIds[i % 20]!)))
  t.strictSame(batches, [[500, 20]])

  const server = await startPrivateRedis(t)
  if (!server) return
  const { counter: own } = await countOn(t, server.url, { patience: patient })
  const observer = observe(t, server.url)
  await hit(own, newId('apk_'))
  await observer.config('RESETSTAT')
  await Promise.all(upTo(500).map((i) => hit(own, keyIds[i % 20]!)))
  const stats = await observer.info('commandstats')
  t.match(stats, /cmdstat_evalsha:calls=1,/, 'one call')
  t.match(stats, /cmdstat_incrby:calls=20,/, 'one increment for each key')
  t.match(stats, /cmdstat_mget:calls=1,/, 'versions are read by the same call')
})

t.test('a lone hit goes out at the end of its turn', async (t) => {
  const batches: number[] = []
  const counter = await open(t, { onBatch: (hits) => batches.push(hits) })
  const answered = hit(counter, newId('apk_'))
  await nextTurn()
  await nextTurn()
  t.strictSame(batches, [1])
  await answered
})

t.test('a thousand keys of one turn are counted by one call', async (t) => {
  const batches: [number, number][] = []
  const counter = await open(t, { onBatch: (hits, keys) => batches.push([hits, keys]) })
  const counted = await Promise.all(upTo(1000).map(() => hit(counter, newId('apk_'))))
  t.ok(counted.every(({ number, turn }) => number === 1 && turn.shared))
  t.strictSame(batches, [[1000, 1000]])
})

t.test(
  'a counter is a plain integer that expires two minutes after each hit, had it no expiry before',
  async (t) => {
    const counter = await open(t)
    let seen: unknown[] = []
    await inOneMinute(
      async () => {
        const keyId = newId('apk_')
        const name = `rl:{${keyId}}:${await minuteOf(redis)}`
        const answers = await hits(counter, keyId, 3)
        seen = [await redis.get(name), await redis.ttl(name)]
        await redis.persist(name)
        answers.push(await hit(counter, keyId))
        seen.push(await redis.get(name), await redis.ttl(name))
        return answers
      },
      () => minuteOf(redis),
    )
    const [count, ttlS, again, ttlAgainS] = seen
    t.strictSame([count, again], ['3', '4'])
    for (const ttl of [ttlS, ttlAgainS]) t.ok(Number(ttl) >= 60 && Number(ttl) <= 120, `${ttl} s`)
  },
)

t.test('a version expires, later than any instance believes a copy', async (t) => {
  const counter = await open(t)
  const keyId = newId('apk_')
  await redis.set(`rl:{${keyId}}:v`, 1)
  await counter.raise([{ keyId, version: 2 }])
  const ttlS = await redis.ttl(`rl:{${keyId}}:v`)
  t.ok(ttlS > 540 && ttlS <= 600, 'ten minutes')
})

t.test('nothing but a counter and a version is kept of a key', async (t) => {
  const counter = await open(t)
  const keyId = newId('apk_')
  const { turn } = await hit(counter, keyId)
  await counter.raise([{ keyId, version: 2 }])
  const minute = Math.floor(turn.nowMs / 60_000)
  const kept = await redis.keys(`*${keyId}*`)
  t.strictSame(kept.sort(), [`rl:{${keyId}}:${minute}`, `rl:{${keyId}}:v`])
})

t.test('counting goes on when Redis has forgotten its scripts', async (t) => {
  const modes: string[] = []
  const counter = await open(t, { onOutage: (outage) => modes.push(outage === null ? 'shared' : 'local') })
  const counted = await inOneMinute(async () => {
    const keyId = newId('apk_')
    const first = await hit(counter, keyId)
    await redis.script('FLUSH')
    const [second, third] = await hits(counter, keyId, 2)
    await redis.script('FLUSH')
    t.equal(await counter.raise([{ keyId, version: 5 }]), true)
    return [first, second!, third!, await hit(counter, keyId)]
  })
  t.strictSame(numbersOf(counted), [1, 2, 3, 4])
  t.equal(counted[3]!.version, 5)
  t.strictSame(modes, [], 'and Redis was never taken for away')
})
