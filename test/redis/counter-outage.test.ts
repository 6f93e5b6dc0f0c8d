// Redis down in each of the ways it can be: the instance counts on by itself at once, and later in
// Redis again.
import { once } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { install } from '@sinonjs/fake-timers'
import t from 'tap'
import { connectRedis } from '../../src/redis/connect.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import { minuteOf } from '../../src/rules/window.ts'
import type { Counter, KeyCount, Outage } from '../../src/stores.ts'
import {
  ascending,
  type Counted,
  hit,
  hits,
  inOneMinute,
  minVersionOf,
  numbersOf,
  upTo,
} from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { startPrivateRedis, startTcpProxy } from '../services/index.ts'
import { countAt, observe, soonDown } from './counters.ts'

const server = await startPrivateRedis(t)
const isOver = (outage: Outage | null) => outage === null

if (server) {
  const proxy = await startTcpProxy(t, server.url)
  const redis = observe(t, server.url)

  const faults: Record<string, { begin: () => unknown; end: () => Promise<unknown> }> = {
    'is frozen': { begin: server.freeze, end: server.thaw },
    'is killed, and has lost everything': { begin: () => server.kill(), end: server.restart },
    'is out of memory': {
      begin: () => redis.config('SET', 'maxmemory', '1'),
      end: () => redis.config('SET', 'maxmemory', '0'),
    },
    'is behind a network that swallows everything': { begin: proxy.blackHole, end: proxy.heal },
  }

  for (const [what, fault] of Object.entries(faults)) {
    t.test(`while Redis ${what}, counting goes on from the last count seen`, async (t) => {
      const { client, counter, outages, untilShared } = countAt(t, proxy.url, { patience: soonDown })
      let connections = 0
      client.on('connect', () => connections++)
      const counted = await inOneMinute(async () => {
        await untilShared()
        outages.length = 0
        const keyId = newId('apk_')
        await counter.raise([{ keyId, version: 2 }])
        const before = await hits(counter, keyId, 4)
        connections = 0
        await fault.begin()
        const [isConfirmed, during] = await Promise.all([
          counter.raise([{ keyId, version: 3 }]),
          hits(counter, keyId, 4),
        ])
        t.equal(isConfirmed, false, 'a change is not confirmed')
        t.equal(counter.mode(), 'local')
        during.push(...(await hits(counter, keyId, 50)))
        // The connection is replaced by one that leads into the black hole too.
        if (fault.begin === proxy.blackHole) await until('it connects again', () => connections > 0)
        await fault.end()
        await untilShared()
        return [...before, ...during, ...(await hits(counter, keyId, 4))]
      })
      t.strictSame(numbersOf(counted), upTo(62))
      const [before, during, after] = [counted.slice(0, 4), counted.slice(4, 58), counted.slice(58)]
      t.ok([...before, ...after].every(({ turn }) => turn.shared))
      t.ok(before.every((one) => minVersionOf(one) === 2))
      t.ok(
        during.every(({ turn, version }) => !turn.shared && version === 0),
        'nothing confirms a copy',
      )
      t.strictSame(outages.map(isOver), [false, true], 'both changes are reported, once')
    })
  }

  const cutOff: Record<string, () => Promise<unknown>> = {
    'a master without its replicas': () => redis.config('SET', 'min-replicas-to-write', '1'),
    'a replica without its master': async () => {
      await redis.config('SET', 'min-replicas-to-write', '0', 'replica-serve-stale-data', 'no')
      await redis.call('REPLICAOF', '127.0.0.1', '1')
    },
  }
  for (const [what, begin] of Object.entries(cutOff))
    t.test(`while ${what} answers, new connections look for the one that counts`, async (t) => {
      const successor = (await startPrivateRedis(t))!
      const { counter, untilDown, untilShared } = countAt(t, proxy.url, { patience: soonDown })
      t.teardown(async () => {
        proxy.retarget(server.url)
        proxy.cut()
        await server.restart()
      })
      await untilShared()
      await begin()
      await hit(counter, newId('apk_'))
      await untilDown()
      proxy.retarget(successor.url)
      await untilShared()
      t.equal((await hit(counter, newId('apk_'))).turn.shared, true)
    })

  t.test('hits under way when Redis is killed are answered, each once', async (t) => {
    const { counter, untilShared } = countAt(t, server.url, { patience: soonDown })
    const counted = await inOneMinute(async () => {
      await server.restart()
      await untilShared()
      const keyId = newId('apk_')
      const answers: Promise<Counted>[] = []
      const killed = server.kill()
      for (let i = 0; i < 300; i++) {
        answers.push(hit(counter, keyId))
        if (i % 10 === 0) await nextTurn()
      }
      await killed
      return Promise.all(answers)
    })
    const numbers = numbersOf(counted).sort(ascending)
    t.equal(new Set(numbers).size, 300, 'no number twice')
    t.ok(numbers.at(-1)! <= 600, 'a call that ran unseen costs its hits once more at most')
  })

  t.test('a counter made while Redis is down counts locally, and in Redis once it is up', async (t) => {
    await server.kill()
    const { counter, outages, untilShared } = countAt(t, server.url, { patience: soonDown })
    t.match(await hit(counter, newId('apk_')), { number: 1, turn: { shared: false } })
    await server.restart()
    await untilShared()
    t.match(await hit(counter, newId('apk_')), { number: 1, turn: { shared: true } })
    t.strictSame(outages.map(isOver), [false, true])
  })

  t.test('counts that a restart has lost are visited as this instance knows them', async (t) => {
    const { counter, untilDown, untilShared } = countAt(t, server.url, { patience: soonDown })
    await untilShared()
    const keyId = newId('apk_')
    let minute = 0
    const seen: KeyCount[] = []
    let short: boolean[] = []
    await inOneMinute(async () => {
      const counted = await hits(counter, keyId, 3)
      minute = minuteOf(counted[0]!.turn.nowMs)
      t.equal(counter.mayLackCounts(minute), false)
      await server.kill()
      await untilDown()
      await server.restart()
      await untilShared()
      short = [minute - 1, minute].map(counter.mayLackCounts)
      seen.length = 0
      t.match(await counter.scan(minute, (slice) => void seen.push(...slice)), { complete: true, scanned: 0 })
      return counted
    })
    t.strictSame(short, [true, true], 'nothing says which minutes it had')
    t.strictSame(seen, [{ keyId, count: 3 }], 'although nobody has used the key since')
  })

  t.test('what is sent while there is no connection does not wait for the next one', async (t) => {
    const { client, counter, untilShared } = countAt(t, proxy.url, { patience: soonDown })
    await untilShared()
    proxy.refuse()
    proxy.cut()
    await until('it waits before it connects again', () => client.status === 'reconnecting')
    const raising = counter.raise([{ keyId: newId('apk_'), version: 2 }])
    await proxy.heal()
    t.equal(await raising, false)
  })

  t.test('a new outage does not have the cause of the last one', async (t) => {
    let otherServers = 0
    const { causes, outages, untilShared, untilDown } = countAt(t, server.url, {
      onOtherServer: () => otherServers++,
    })
    await untilShared()
    await server.kill()
    await untilDown('refused')
    t.equal(otherServers, 1, 'none has answered since the first one')
    await server.restart()
    await untilShared()
    // The server closes the connection, and says nothing.
    await redis.call('CLIENT', 'KILL', 'TYPE', 'normal')
    await until(
      'the outage and its end are reported',
      () => causes().filter((one) => one === null).length > 1,
    )
    t.match(outages.at(-2), { cause: 'disconnected', reason: /^not connected$/ })
    t.equal(otherServers, 3, 'and one after each outage')
  })

  t.test('a server that accepts connections and does not answer is reported as silent', async (t) => {
    proxy.blackHole()
    const { client, counter, causes, untilDown, untilShared } = countAt(t, proxy.url, { patience: soonDown })
    const silent = [{ cause: 'timeout', reason: 'accepts connections, but does not answer' }]
    await untilDown('timeout')
    for (let connections = 0; connections < 3; connections++) {
      await once(client, 'connect')
      t.match(counter.outages(), silent, 'also on the next connection')
    }
    await proxy.heal()
    await untilShared()
    proxy.blackHole()
    proxy.cut()
    await untilDown('timeout')
    t.match(counter.outages(), silent, 'also in place of one that has answered')
    await proxy.heal()
    await untilShared()
    // A connection that was answered.
    await redis.call('CLIENT', 'KILL', 'TYPE', 'normal')
    await until('the outage and its end are reported', () => causes().length === 6)
    t.strictSame(causes(), ['timeout', null, 'disconnected', null, 'disconnected', null])
  })

  t.test('a counter that is closed reports no outage', async (t) => {
    const { client, counter, outages, untilShared } = countAt(t, server.url)
    await untilShared()
    outages.length = 0
    await counter.close()
    await once(client, 'end')
    t.strictSame(outages, [])
  })

  for (const [what, ask] of [
    ['a change', (counter: Counter) => counter.raise([{ keyId: newId('apk_'), version: 2 }])],
    ['a look at its clock', (counter: Counter) => counter.now()],
    ['a look at counts', (counter: Counter) => counter.countsOf([newId('apk_')], [minuteOf(Date.now())])],
  ] as const)
    t.test(`without hits, ${what} finds out that Redis is silent`, async (t) => {
      const { counter, untilShared, untilDown } = countAt(t, proxy.url, { patience: 1 })
      await untilShared()
      proxy.blackHole()
      await ask(counter)
      await untilDown('timeout')
      await proxy.heal()
      await untilShared()
    })

  t.test('with patience, Redis counts and takes changes however long it takes', async (t) => {
    const { counter, untilShared } = countAt(t, proxy.url, { patience: soonDown })
    await untilShared()
    proxy.delay(600)
    t.equal(await counter.raise([{ keyId: newId('apk_'), version: 2 }]), true)
    proxy.delay(200)
    t.equal((await hit(counter, newId('apk_'))).turn.shared, true)
    await proxy.heal()
  })

  t.test('a silent Redis has 100 ms to count, and 500 ms to take a change', async (t) => {
    const client = connectRedis(parseRedisUrl(proxy.url)!)
    const calls: [what: string, ms: number][] = []
    let sent = 0
    const counter = createRedisCounter({
      client,
      onBatch: () => sent++,
      onCall: (what, seconds) => calls.push([what, Math.round(seconds * 1e6) / 1000]),
    })
    t.teardown(() => counter.close())
    await until('Redis counts', () => counter.mode() === 'shared')
    const clock = install({
      toFake: ['setTimeout', 'clearTimeout', 'performance'],
      shouldClearNativeTimers: true,
    })
    t.teardown(() => clock.uninstall())
    /** What came of the calls by then. */
    const after = async (ms: number) => {
      await clock.tickAsync(ms)
      for (let turn = 0; turn < 3; turn++) await nextTurn()
      return calls
    }
    // So that no time is 0.
    await clock.tickAsync(1000)
    proxy.blackHole()
    const raising = counter.raise([{ keyId: newId('apk_'), version: 2 }])
    const hitting = hit(counter, newId('apk_'))
    while (sent === 0) await nextTurn()
    t.strictSame(await after(99), [])
    t.strictSame(await after(1), [['count', 100]])
    t.equal((await hitting).turn.shared, false)
    t.strictSame(await after(399), [['count', 100]])
    t.strictSame(await after(1), [
      ['count', 100],
      ['publish', 500],
    ])
    t.equal(await raising, false)
    clock.uninstall()
    await proxy.heal()
  })

  t.test('a hit whose connection is lost does not wait for its time limit', async (t) => {
    let sent = 0
    // A time limit of almost three hours.
    const { counter, untilShared } = countAt(t, proxy.url, { patience: 100_000, onBatch: () => sent++ })
    await untilShared()
    proxy.blackHole()
    const hitting = hit(counter, newId('apk_'))
    await until('it is sent', () => sent > 0)
    proxy.cut()
    t.equal((await hitting).turn.shared, false)
    await proxy.heal()
  })
}
