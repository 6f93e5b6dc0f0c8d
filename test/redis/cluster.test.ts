// The counter in a Redis Cluster that asks for a password: keys on several masters, nodes that are
// down, nodes that refuse.
import slotOf from 'cluster-key-slot'
import type { Cluster, Redis } from 'ioredis'
import t, { type Test } from 'tap'
import type { RedisCounterOptions } from '../../src/redis/counter.ts'
import { loadScripts } from '../../src/redis/scripts.ts'
import { newId } from '../../src/rules/id.ts'
import { minuteOf } from '../../src/rules/window.ts'
import type { KeyCount, Lease, Scan } from '../../src/stores.ts'
import {
  counterSuite,
  hit,
  hitAll,
  inOneMinute,
  minVersionOf,
  newKeyIds,
  numbersOf,
} from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { startRedisCluster, startTcpProxy } from '../services/index.ts'
import { clusterCommands, harmless, refusedCommands } from './acl.ts'
import { countAt, idOnNode, soonDown } from './counters.ts'

const password = 'a-password-that-nobody-may-read'
// A node that a test freezes stays a member: without it the whole cluster would refuse to serve.
const args = ['--cluster-node-timeout', '60000']
const cluster = await startRedisCluster(t, { masters: 3, password, args })

/** A counter whose REDIS_URL names these nodes. */
function countOn(
  t: Test,
  nodes: number[],
  access = `:${password}`,
  options: Partial<RedisCounterOptions> = {},
) {
  const urls = nodes.map((i) => `redis://${access}@127.0.0.1:${cluster!.nodes[i]!.port}`)
  return countAt(t, urls.join(), options)
}
const impatiently = (t: Test) => countOn(t, [0, 1], undefined, { patience: soonDown })

const idOn = (node: number) => idOnNode(node, 3)

if (cluster) {
  t.test('what every counter promises', async (t) => {
    const { counter, untilShared } = countOn(t, [0, 1, 2])
    await untilShared()
    counterSuite(t, counter)
  })

  t.test('instances that name two nodes of three share one count of every key', async (t) => {
    const [one, other] = [countOn(t, [0, 1]), countOn(t, [1, 2])]
    await Promise.all([one.untilShared(), other.untilShared()])
    const counted = await inOneMinute(async () => {
      const keyIds = newKeyIds(60)
      return [...(await hitAll(one.counter, keyIds)), ...(await hitAll(other.counter, keyIds))]
    })
    t.strictSame(
      [0, 60].map((from) => [...new Set(numbersOf(counted.slice(from, from + 60)))]),
      [[1], [2]],
      'the second instance goes on from the first',
    )
    t.ok(counted.every(({ turn }) => turn.shared))
    t.strictSame([...one.counter.outages(), ...other.counter.outages()], [])
  })

  t.test('keys that were read together are confirmed, each by its own node', async (t) => {
    const { counter, untilShared } = countOn(t, [0, 1, 2])
    await untilShared()
    const keyIds = newKeyIds(60)
    const leases = (await hitAll(counter, keyIds)).map(({ version }) => version as Lease)
    for (const [i, keyId] of keyIds.entries()) counter.confirm({ keyId, version: 3 }, leases[i]!)
    await until('all are', async () => (await hitAll(counter, keyIds)).every(({ version }) => version === 3))
  })

  t.test('nodes whose names are unknown are skipped', async (t) => {
    const url = `redis://:${password}@127.0.0.1:${cluster.nodes[0]!.port}`
    const { counter, untilShared } = countAt(t, `redis://:${password}@latchkey.invalid:7000,${url}`)
    await untilShared()
    t.ok((await hit(counter, newId('apk_'))).turn.shared, 'the cluster counts it')
  })

  t.test('only the keys of a master that is down are counted locally, until it is back', async (t) => {
    const { counter, untilShared } = impatiently(t)
    await untilShared()
    const node = cluster.nodes[1]!
    const scanned = new Map<string, number>()
    let scan: Scan | undefined
    let countsSeen: (number | undefined)[] = []
    const counted = await inOneMinute(async () => {
      const keyIds = newKeyIds(60)
      const before = await hitAll(counter, keyIds)
      await node.freeze()
      const during = [...(await hitAll(counter, keyIds)), ...(await hitAll(counter, keyIds))]
      scan = await counter.scan(minuteOf(before[0]!.turn.nowMs), (slice) => {
        for (const { keyId, count } of slice) scanned.set(keyId, count)
      })
      countsSeen = keyIds.map((keyId) => scanned.get(keyId))
      await node.thaw()
      await untilShared()
      return [...before, ...during, ...(await hitAll(counter, keyIds))]
    })
    const rounds = [0, 60, 120, 180].map((from) => counted.slice(from, from + 60))
    t.strictSame(
      rounds.map((round) => [...new Set(numbersOf(round))]),
      [[1], [2], [3], [4]],
    )
    const [before, , down, after] = rounds.map((round) => round.filter(({ turn }) => turn.shared).length)
    t.strictSame([before, after], [60, 60])
    t.ok(down! > 20 && down! < 60, `the others count ${down} keys of 60`)
    t.match(scan, { complete: false, mode: 'local' })
    t.strictSame([...new Set(countsSeen)], [3], 'a scan sees both')
  })

  const [source, target] = cluster.redis as [Redis, Redis]

  /** Does the work while the slot of an id moves from the first node to the second. */
  async function whileMoving<T>(keyId: string, work: () => Promise<T>): Promise<T> {
    const setSlot = (node: Redis, ...state: string[]) =>
      node.call('CLUSTER', 'SETSLOT', String(slotOf(keyId)), ...state)
    await setSlot(target, 'IMPORTING', String(await source.call('CLUSTER', 'MYID')))
    await setSlot(source, 'MIGRATING', String(await target.call('CLUSTER', 'MYID')))
    const result = await work()
    for (const node of [source, target]) await setSlot(node, 'STABLE')
    return result
  }
  const setMoved = (name: string, value: string) =>
    target.pipeline([['asking'], ['set', name, value, 'EX', '100']]).exec()

  t.test('a scan reads a counter whose slot is moving where it is now', async (t) => {
    const { counter, untilShared } = countOn(t, [0, 1])
    await untilShared()
    const keyId = idOn(0)
    const minute = minuteOf(await counter.now()) + 5
    await whileMoving(keyId, async () => {
      await setMoved(`rl:{${keyId}}:${minute}`, '7')
      const seen: KeyCount[] = []
      const scan = await counter.scan(minute, (slice) => void seen.push(...slice))
      t.match([scan, seen], [{ complete: true, scanned: 1 }, [{ keyId, count: 7 }]])
    })
  })

  for (const { moved, clockAheadMs = 0, stored = '3', version = 3 } of [
    { moved: 'counter' },
    { moved: 'version' },
    { moved: 'counter', clockAheadMs: 90_000 },
    { moved: 'counter', stored: '3?17.5', version: '3?17.5' },
    { moved: 'counter', stored: 'not a version', version: '0?' },
  ])
    t.test(
      `a hit finds the ${moved} where it has moved, version "${stored}", clock ahead by ${clockAheadMs} ms`,
      async (t) => {
        const { counter, untilShared } = countOn(t, [0, 1])
        await untilShared()
        const minuteNow = async () => minuteOf(await counter.now())
        const [counted] = await inOneMinute(async () => {
          const keyId = idOn(0)
          const names = { counter: `rl:{${keyId}}:${await minuteNow()}`, version: `rl:{${keyId}}:v` }
          await source.mset(names.counter, '7', names.version, stored)
          return whileMoving(keyId, async () => {
            const name = names[moved as keyof typeof names]
            await setMoved(name, String(await source.getdel(name)))
            const now = Date.now
            if (clockAheadMs > 0) t.intercept(Date, 'now', { value: () => now() + clockAheadMs })
            const counted = await hit(counter, keyId)
            if (moved === 'counter') {
              const replies = await target.pipeline([['asking'], ['ttl', name]]).exec()
              t.ok(Number(replies![1]![1]) > 100, 'with a new expiry')
            }
            return [counted]
          })
        }, minuteNow)
        t.match(counted, { number: 8, version, turn: { shared: true } })
      },
    )

  for (const [ahead, passedMs] of [
    [1, 0],
    [-1, 59_999],
  ] as const)
    t.test(`of two nodes in different minutes (${ahead}), the first one's is counted in`, async (t) => {
      const { client, counter, outages, untilShared } = countOn(t, [0, 1])
      await untilShared()
      const keyId = idOn(0)
      const { hit } = loadScripts(client)
      const minuteNow = minuteOf(await counter.now())
      const commands = client as unknown as { latchkeyCount(...args: unknown[]): Promise<number[]> }
      const count = commands.latchkeyCount.bind(client)
      let first = 0
      t.intercept(client, 'latchkeyCount' as keyof typeof client, {
        async value(name: string, minute: number, ...more: unknown[]) {
          if (first > 0) return count(name, minute, ...more)
          first = minuteNow + ahead
          return [60 * first, 0]
        },
      })
      await source.set(`rl:{${keyId}}:v`, '3')
      await whileMoving(keyId, async () => {
        // As in the last 100 ms of a minute.
        const [seconds, micros, number] = (await hit([keyId], [1], minuteNow + 1)) as number[]
        t.strictSame([seconds! * 1000 + Math.floor(micros! / 1000), number], [60_000 * first + passedMs, 1])
        const replies = await target.pipeline([['asking'], ['ttl', `rl:{${keyId}}:${first}`]]).exec()
        t.ok(Number(replies![1]![1]) > 100)
      })
      t.strictSame(outages, [])
    })

  t.test('a hit that comes a minute too late is not counted, while its slot moves either', async (t) => {
    const { client, counter, untilShared } = countOn(t, [0, 1])
    await untilShared()
    const keyId = idOn(0)
    const before = minuteOf(await counter.now()) - 1
    const { hit } = loadScripts(client)
    const late = async () => t.equal((await hit([keyId], [1], before)).length, 2, 'the time alone')
    await late()
    await source.set(`rl:{${keyId}}:v`, '3')
    await whileMoving(keyId, late)
    t.strictSame(await source.keys(`rl:{${keyId}}:[0-9]*`), [])
    t.strictSame(await target.keys(`rl:{${keyId}}:[0-9]*`), [])
  })

  t.test('a call that has failed may have run, and is not repeated', async (t) => {
    const { client, counter, untilShared } = countOn(t, [0, 1])
    await untilShared()
    const keyId = idOn(0)
    t.intercept(client, 'latchkeyHitBuffer' as keyof typeof client, {
      value: async () => {
        throw new Error('Connection is closed.')
      },
    })
    t.match(await hit(counter, keyId), { number: 1, turn: { shared: false } })
    t.strictSame(await source.keys(`rl:{${keyId}}:*`), [])
  })

  t.test('a new counter does not say shared before every master counts', async (t) => {
    await cluster.nodes[2]!.freeze()
    const { counter, outages, untilDown, untilShared } = impatiently(t)
    await untilDown()
    t.equal(counter.mode(), 'local')
    t.match(outages[0]!.reason, `:${cluster.nodes[2]!.port}:`, 'and names the one that does not')
    t.equal((await hit(counter, idOn(0))).turn.shared, true, 'the others count their keys')
    await cluster.nodes[2]!.thaw()
    await untilShared()
    t.strictSame(counter.outages(), [])
  })

  t.test('the connection to a node that falls silent is replaced', async (t) => {
    const { client, counter, untilShared } = impatiently(t)
    await untilShared()
    const { port } = cluster.nodes[2]!
    const connection = () => (client as Cluster).nodes().find(({ options }) => options.port === port)
    const silent = connection()
    await cluster.nodes[2]!.freeze()
    t.equal((await hit(counter, idOn(2))).turn.shared, false)
    await until('there is another one', () => ![silent, undefined].includes(connection()))
    const isSilent = () => counter.outages().some(({ reason }) => /does not answer$/.test(reason))
    await until('that one is silent too, and the outage says so', isSilent)
    await cluster.nodes[2]!.thaw()
    await untilShared()
    t.equal((await hit(counter, idOn(2))).turn.shared, true)
  })

  t.test('a node that refuses the password is an outage of its keys only', async (t) => {
    const { counter, outages, causes, untilDown, untilShared } = countOn(t, [0, 1])
    await untilShared()
    const refusing = cluster.redis[2]!
    await refusing.config('SET', 'requirepass', 'another-one')
    await refusing.call('CLIENT', 'KILL', 'TYPE', 'normal')
    await untilDown('wrong_password')
    t.equal(counter.mode(), 'local')
    t.equal((await hit(counter, idOn(2))).turn.shared, false)
    t.equal((await hit(counter, idOn(0))).turn.shared, true)
    t.notMatch(JSON.stringify(outages), password)
    t.ok(causes().includes('wrong_password'), 'the cause is reported once it is known')
    await refusing.config('SET', 'requirepass', password)
    await untilShared()
    t.equal(outages.at(-1), null)
  })

  t.test('a node that refuses the password and is then gone is reported as gone', async (t) => {
    const { causes, untilDown, untilShared } = countOn(t, [0, 1])
    await untilShared()
    const refusing = cluster.redis[2]!
    await refusing.config('SET', 'requirepass', 'another-one')
    await refusing.call('CLIENT', 'KILL', 'TYPE', 'normal')
    await untilDown('wrong_password')
    await cluster.nodes[2]!.kill()
    await untilDown('refused')
    await cluster.nodes[2]!.restart()
    await untilShared()
    t.equal(causes().at(-1), null)
  })

  t.test('a full node is asked itself whether it counts again', async (t) => {
    const { counter, causes, untilDown, untilShared } = countOn(t, [0, 1])
    await untilShared()
    const full = cluster.redis[2]!
    const refusals = async () => Number(/errorstat_OOM:count=(\d+)/.exec(await full.info('errorstats'))?.[1])
    await full.config('SET', 'maxmemory', '1')
    await hit(counter, idOn(2))
    await untilDown('out_of_memory')
    const before = await refusals()
    await until('it has been asked twice', async () => causes().length > 1 || (await refusals()) > before + 1)
    t.strictSame(causes(), ['out_of_memory'])
    await full.config('SET', 'maxmemory', '0')
    await untilShared()
    t.strictSame(causes(), ['out_of_memory', null])
  })

  t.test('slots that no node has any more are reported as such', async (t) => {
    const all = (...command: [string, ...string[]]) =>
      Promise.all(cluster.redis.map((redis) => redis.call(...command)))
    await all('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
    const { counter, causes, untilDown, untilShared } = countOn(t, [0, 1])
    await untilShared()
    const range = [String(Math.floor((2 * 16_384) / 3)), '16383']
    await all('CLUSTER', 'DELSLOTSRANGE', ...range)
    await untilDown('cluster_down')
    t.equal((await hit(counter, idOn(2))).turn.shared, false)
    t.equal((await hit(counter, idOn(0))).turn.shared, true)
    await cluster.redis[2]!.call('CLUSTER', 'ADDSLOTSRANGE', ...range)
    await untilShared()
    // Until all nodes know where the slots are, the connection may be lost once more.
    const said = causes()
    const at = said.indexOf('cluster_down')
    t.strictSame(said.slice(at, at + 2), ['cluster_down', null], 'and in the log')
    t.equal(said.at(-1), null)
    await all('CONFIG', 'SET', 'cluster-require-full-coverage', 'yes')
    await until('all nodes know of it', async () =>
      (await all('CLUSTER', 'INFO')).every((said) => /state:ok.*slots_ok:16384/s.test(String(said))),
    )
  })

  t.test('a password that all nodes refuse is reported as such', async (t) => {
    const { counter, outages, untilDown } = countOn(t, [0, 1, 2], ':wrong')
    await untilDown('wrong_password')
    t.equal(counter.mode(), 'local')
    t.match(outages[0], { cause: 'wrong_password', reason: /WRONGPASS/ })
  })

  t.test('the documented permissions are enough', async (t) => {
    for (const redis of cluster.redis)
      await redis.call('ACL', 'SETUSER', 'counting', 'on', '>secret', '~rl:*', ...clusterCommands)
    const { counter, outages, untilShared } = countOn(t, [0, 1], 'counting:secret')
    await untilShared()
    const keyIds = [0, 1, 2].map(idOn)
    t.ok((await hitAll(counter, keyIds)).every(({ turn }) => turn.shared))
    t.equal(await counter.raise(keyIds.map((keyId) => ({ keyId, version: 2 }))), true)
    t.ok((await hitAll(counter, keyIds)).every((one) => minVersionOf(one) === 2))
    t.match(await counter.scan(minuteOf(await counter.now()), () => {}), { complete: true })
    t.strictSame(outages, [])
    const refused = (await Promise.all(cluster.redis.map(refusedCommands))).flat()
    t.strictSame(
      refused.filter((command) => !harmless.includes(command)),
      [],
    )
  })

  t.test('a cluster that has moved is found again through REDIS_URL', async (t) => {
    const former = (await startRedisCluster(t, { masters: 1, replicas: 1, password, args }))!
    const proxies = await Promise.all(former.nodes.map(({ port }) => startTcpProxy(t, port)))
    const urls = proxies.map(({ port }) => `redis://:${password}@127.0.0.1:${port}`)
    const { client, counter, untilDown, untilShared } = countAt(t, urls.join(), { patience: soonDown })
    await untilShared()
    await until('it is connected to the replica', () =>
      (client as Cluster).nodes('slave').some(({ status }) => status === 'ready'),
    )
    // No connection ends: the addresses are those of hosts that have disappeared.
    for (const node of former.nodes) await node.freeze()
    for (const proxy of proxies) proxy.retarget(cluster.nodes[0]!.port)
    await hit(counter, idOn(0))
    await untilDown('timeout')
    await untilShared()
    t.match(await hit(counter, idOn(1)), { turn: { shared: true } })
  })
}
