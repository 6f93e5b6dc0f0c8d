// A Redis Cluster that asks for a password: every node gets it, also those that REDIS_URL does not name, and one that refuses is
// known to be out.
import slotOf from 'cluster-key-slot'
import t, { type Test } from 'tap'
import { connectRedis } from '../../src/redis/connect.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import type { Outage } from '../../src/stores.ts'
import { hit, inOneMinute, upTo } from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { startRedisCluster } from '../services/index.ts'
import { clusterCommands, harmless, refusedCommands } from './acl.ts'

const password = 'a-password-that-nobody-may-read'
const cluster = await startRedisCluster(t, { masters: 3, password })

function countOn(t: Test, access: string, nodes: number[]) {
  const urls = nodes.map((i) => `redis://${access}@127.0.0.1:${cluster!.nodes[i]!.port}`)
  const outages: (Outage | null)[] = []
  const client = connectRedis(parseRedisUrl(urls.join(','))!)
  const counter = createRedisCounter({ client, onOutage: (outage) => outages.push(outage) })
  t.teardown(() => counter.close())
  return { counter, outages, isShared: () => counter.mode === 'shared' }
}

/** An id that is counted by this node. */
function idOn(node: number): string {
  for (;;) {
    const id = newId('apk_')
    if (Math.floor((slotOf(id) * 3) / 16_384) === node) return id
  }
}

if (cluster) {
  t.test('instances that name two nodes of three share one count of every key', async (t) => {
    const [one, other] = [countOn(t, `:${password}`, [0, 1]), countOn(t, `:${password}`, [1, 2])]
    await until('it counts in Redis', () => one.isShared() && other.isShared())
    const counted = await inOneMinute(async () => {
      const keyIds = upTo(60).map(() => newId('apk_'))
      await Promise.all(keyIds.map((keyId) => hit(one.counter, keyId)))
      return Promise.all(keyIds.map((keyId) => hit(other.counter, keyId)))
    })
    t.strictSame(new Set(counted.map(({ number, turn }) => `${number} ${turn.shared}`)), new Set(['2 true']))
    t.strictSame([...one.outages, ...other.outages], [])
  })

  t.test('it does not say shared before every master counts, though none has had a hit', async (t) => {
    await cluster.nodes[2]!.freeze()
    const { counter, outages, isShared } = countOn(t, `:${password}`, [0, 1])
    await until('the outage is seen', () => counter.outages.length > 0)
    t.equal(counter.mode, 'local')
    t.match(outages[0]!.reason, `:${cluster.nodes[2]!.port}:`, 'and names the one that does not')
    t.equal((await hit(counter, idOn(0))).turn.shared, true, 'the keys of the others are counted there')
    await cluster.nodes[2]!.thaw()
    await until('it counts in Redis', isShared)
    t.equal(counter.outages.length, 0)
  })

  t.test('a node that refuses the password is an outage of its keys', async (t) => {
    const { counter, outages, isShared } = countOn(t, `:${password}`, [0, 1])
    await until('it counts in Redis', isShared)
    const refusing = cluster.redis[2]!
    await refusing.config('SET', 'requirepass', 'another-one')
    await refusing.call('CLIENT', 'KILL', 'TYPE', 'normal')
    await until('the outage is seen', () => counter.outages[0]?.cause === 'wrong_password')
    t.equal(counter.mode, 'local')
    t.equal((await hit(counter, idOn(2))).turn.shared, false)
    t.equal((await hit(counter, idOn(0))).turn.shared, true)
    t.notMatch(JSON.stringify(outages), password)
    t.ok(
      outages.some((outage) => outage?.cause === 'wrong_password'),
      'it is told when it turns out',
    )
    await refusing.config('SET', 'requirepass', password)
    await until('it counts in Redis', isShared)
    t.equal(outages.at(-1), null)
  })

  t.test('a wrong password of all nodes is told as such', async (t) => {
    const { counter, outages } = countOn(t, ':wrong', [0, 1, 2])
    await until('the outage is seen', () => counter.outages[0]?.cause === 'wrong_password')
    t.equal(counter.mode, 'local')
    t.match(outages[0], { cause: 'wrong_password', reason: /WRONGPASS/ })
  })

  t.test('the permissions of the documentation are enough', async (t) => {
    for (const redis of cluster.redis)
      await redis.call('ACL', 'SETUSER', 'counting', 'on', '>secret', '~rl:*', ...clusterCommands)
    const { counter, outages, isShared } = countOn(t, 'counting:secret', [0, 1])
    await until('it counts in Redis', isShared)
    const keyIds = [0, 1, 2].map(idOn)
    for (const keyId of keyIds) t.equal((await hit(counter, keyId)).turn.shared, true)
    t.equal(await counter.raise(keyIds.map((keyId) => ({ keyId, version: 2 }))), true)
    for (const keyId of keyIds) t.equal((await hit(counter, keyId)).version, 2)
    t.strictSame(outages, [])
    const refused = await Promise.all(cluster.redis.map(refusedCommands))
    t.strictSame(
      refused.flat().filter((command) => !harmless.includes(command)),
      [],
    )
  })
}
