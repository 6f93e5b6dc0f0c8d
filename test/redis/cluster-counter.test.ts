// The counter in a Redis Cluster: the conformance suite on three masters, and turns whose keys are on several of them.
import t, { type Test } from 'tap'
import { connectRedis } from '../../src/redis/connect.ts'
import { createRedisCounter } from '../../src/redis/counter.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import { type Counted, counterSuite, hit, inOneMinute, numbersOf, upTo } from '../memory/counter-suite.ts'
import { until } from '../process/until.ts'
import { startRedisCluster } from '../services/index.ts'
import { patient, soonAway } from './counters.ts'

const cluster = await startRedisCluster(t, { masters: 3 })

async function open(t: Test, patience = patient, urls = cluster!.urls) {
  const modes: string[] = []
  const client = connectRedis(parseRedisUrl(urls.join(','))!)
  const counter = createRedisCounter({
    client,
    patience,
    onOutage: (outage) => modes.push(outage === null ? 'shared' : 'local'),
  })
  t.teardown(() => counter.close())
  await until('every master counts', () => counter.mode === 'shared')
  return { counter, modes }
}

if (cluster) {
  counterSuite(t, (t, count) => Promise.all(upTo(count).map(async () => (await open(t)).counter)))

  t.test('instances share one count of every key of a turn, on whichever masters the keys are', async (t) => {
    const [one, other] = [await open(t), await open(t)]
    const counted = await inOneMinute(async () => {
      const keyIds = upTo(50).map(() => newId('apk_'))
      const first = await Promise.all(keyIds.map((keyId) => hit(one.counter, keyId)))
      const second = await Promise.all(keyIds.map((keyId) => hit(other.counter, keyId)))
      return [...first, ...second]
    })
    t.strictSame(new Set(numbersOf(counted.slice(0, 50))), new Set([1]))
    t.strictSame(
      new Set(numbersOf(counted.slice(50))),
      new Set([2]),
      'the second instance goes on from the first',
    )
    t.ok(counted.every(({ turn }) => turn.shared))
    t.strictSame([...one.modes, ...other.modes], [], 'no master was taken for away')
  })

  t.test('nodes whose names are not known are passed over', async (t) => {
    const { counter } = await open(t, patient, ['redis://latchkey.invalid:7000', cluster.urls[0]!])
    const { turn } = await hit(counter, newId('apk_'))
    t.ok(turn.shared, 'it is counted in the cluster')
  })

  t.test('only the keys of a master that is away are counted locally, until it is back', async (t) => {
    const { counter } = await open(t, soonAway)
    const node = cluster.nodes[1]!
    const counted = await inOneMinute(async () => {
      const keyIds = upTo(60).map(() => newId('apk_'))
      const hitAll = () => Promise.all(keyIds.map((keyId) => hit(counter, keyId)))
      const before = await hitAll()
      await node.freeze()
      const first = await hitAll()
      const second = await hitAll()
      await node.thaw()
      await until('every master counts', () => counter.mode === 'shared')
      return [...before, ...first, ...second, ...(await hitAll())]
    })
    const [before, first, second, after] = [0, 60, 120, 180].map((n) => counted.slice(n, n + 60))
    const vouched = (one: Counted[]) => one.filter(({ turn }) => turn.shared).length
    t.strictSame(
      [before, first, second, after].map((one) => [...new Set(numbersOf(one!))]),
      [[1], [2], [3], [4]],
    )
    t.equal(vouched(before!), 60)
    t.ok(
      vouched(second!) > 20 && vouched(second!) < 60,
      `${vouched(second!)} keys of 60 are counted by the others`,
    )
    t.equal(vouched(after!), 60)
  })
}
