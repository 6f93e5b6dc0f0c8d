// Redis away in each of the ways it can be: the instance counts on by itself at once, and Redis counts again by itself.
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { connectRedis } from '../../src/redis/connect.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import type { Counter } from '../../src/stores.ts'
import { ascending, type Counted, hit, hits, inOneMinute, numbersOf, upTo } from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { startPrivateRedis, startTcpProxy } from '../services/index.ts'
import { countOn, observe, soonAway } from './counters.ts'

const isShared = (counter: Counter) => () => counter.mode === 'shared'

t.test('a frozen Redis is noticed, and counting goes on from the last count seen', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const { counter } = await countOn(t, server.url)
  const counted = await inOneMinute(async () => {
    const keyId = newId('apk_')
    await until('Redis counts', isShared(counter))
    const before = await hits(counter, keyId, 3)
    await server.freeze()
    const during = await hits(counter, keyId, 3)
    const later = await hits(counter, keyId, 50)
    await server.thaw()
    return [...before, ...during, ...later]
  })
  t.strictSame(numbersOf(counted), upTo(56))
  t.strictSame(
    counted.map(({ turn }) => turn.shared),
    upTo(56).map((n) => n <= 3),
    'nothing vouches for a copy meanwhile',
  )
})

t.test('hits beyond the calls under way do not wait for one time limit after another', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  let calls = 0
  const { counter } = await countOn(t, server.url, { onBatch: () => calls++ })
  await hit(counter, newId('apk_'))
  await server.freeze()
  calls = 0
  const counted: Promise<Counted>[] = []
  for (let turn = 0; turn < 10; turn++) {
    for (let i = 0; i < 500; i++) counted.push(hit(counter, newId('apk_')))
    await nextTurn()
  }
  await Promise.all(counted)
  await server.thaw()
  t.equal(calls, 2, 'what gathered behind the two turns under way was not sent, to be waited for again')
})

t.test('a thawed Redis counts again, and no number is given twice', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const { counter, modes } = await countOn(t, server.url)
  const counted = await inOneMinute(async () => {
    modes.length = 0
    const keyId = newId('apk_')
    const answers = await hits(counter, keyId, 5)
    await server.freeze()
    answers.push(...(await hits(counter, keyId, 5)))
    await server.thaw()
    await until('Redis counts again', isShared(counter))
    return [...answers, ...(await hits(counter, keyId, 5))]
  })
  t.strictSame(numbersOf(counted).sort(ascending), upTo(15))
  t.ok(counted.slice(10).every(({ turn }) => turn.shared))
  t.strictSame(modes, ['local', 'shared'], 'told once for each change')
})

t.test('a Redis that lost everything goes on from the last count seen', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const { counter, modes } = await countOn(t, server.url)
  const counted = await inOneMinute(async () => {
    modes.length = 0
    const keyId = newId('apk_')
    const answers = await hits(counter, keyId, 4)
    await server.kill()
    answers.push(...(await hits(counter, keyId, 4)))
    await server.restart()
    await until('Redis counts again', isShared(counter))
    return [...answers, ...(await hits(counter, keyId, 4))]
  })
  t.strictSame(numbersOf(counted), upTo(12))
  t.strictSame(modes, ['local', 'shared'])
})

t.test('hits under way when Redis is killed are answered, each once', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const { counter } = await countOn(t, server.url)
  const counted = await inOneMinute(async () => {
    await server.restart()
    await until('Redis counts', isShared(counter))
    const keyId = newId('apk_')
    const answers: Promise<Counted>[] = []
    const killed = server.kill()
    for (let i = 0; i < 300; i++) {
      answers.push(hit(counter, keyId))
      if (i % 10 === 0) await new Promise(setImmediate)
    }
    await killed
    return Promise.all(answers)
  })
  const numbers = numbersOf(counted).sort(ascending)
  t.equal(new Set(numbers).size, 300, 'no number twice')
  t.ok(numbers.at(-1)! <= 600, 'a call that ran unseen costs its hits once more at most')
})

t.test('a Redis out of memory is away until it has some', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const { counter, modes } = await countOn(t, server.url)
  const redis = observe(t, server.url)
  const counted = await inOneMinute(async () => {
    modes.length = 0
    const keyId = newId('apk_')
    const answers = await hits(counter, keyId, 2)
    await redis.config('SET', 'maxmemory', '1')
    answers.push(...(await hits(counter, keyId, 2)))
    t.equal(counter.mode, 'local')
    t.equal(await counter.raise([{ keyId, version: 2 }]), false, 'a change is not confirmed')
    await redis.config('SET', 'maxmemory', '0')
    await until('Redis counts again', isShared(counter))
    return [...answers, ...(await hits(counter, keyId, 2))]
  })
  t.strictSame(numbersOf(counted), upTo(6))
  t.strictSame(modes, ['local', 'shared'])
})

t.test('a network that swallows everything is noticed, and left behind when it heals', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const proxy = await startTcpProxy(t, server.url)
  const { counter, modes } = await countOn(t, proxy.url)
  const counted = await inOneMinute(async () => {
    modes.length = 0
    const keyId = newId('apk_')
    const answers = await hits(counter, keyId, 2)
    proxy.blackHole()
    const during = await hits(counter, keyId, 2)
    // Longer than a silent connection is kept: the next one is made into the black hole, too.
    await new Promise((resolve) => setTimeout(resolve, 1500))
    await proxy.heal()
    await until('Redis counts again', isShared(counter))
    return [...answers, ...during, ...(await hits(counter, keyId, 2))]
  })
  t.strictSame(numbersOf(counted), upTo(6))
  t.strictSame(modes, ['local', 'shared'])
})

t.test('while Redis is away nothing is raised, and that is told', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const { counter } = await countOn(t, server.url)
  const keyId = newId('apk_')
  await counter.raise([{ keyId, version: 2 }])
  await server.freeze()
  t.equal(await counter.raise([{ keyId, version: 3 }]), false)
  t.equal((await hit(counter, keyId)).version, 0, 'no version is known')
  await server.kill()
  t.equal(await counter.raise([{ keyId, version: 3 }]), false)
})

t.test('a counter made while Redis is away counts by itself, and shares once it is there', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  await server.kill()
  const client = connectRedis(parseRedisUrl(server.url)!)
  client.on('error', () => {})
  const modes: string[] = []
  const counter = createRedisCounter({
    client,
    patience: soonAway,
    onOutage: (outage) => modes.push(outage === null ? 'shared' : 'local'),
  })
  t.teardown(() => counter.close())
  t.match(await hit(counter, newId('apk_')), { number: 1, turn: { shared: false } })
  await server.restart()
  await until('Redis counts', isShared(counter))
  t.match(await hit(counter, newId('apk_')), { number: 1, turn: { shared: true } })
  t.strictSame(modes, ['local', 'shared'])
})
