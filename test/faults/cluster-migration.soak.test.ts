// A Redis Cluster that moves slots while their keys are in use, as it is done to grow it or to spread its load.
import slotOf from 'cluster-key-slot'
import t, { type Test } from 'tap'
import { makeKey } from '../instance.ts'
import { failedOf, quantile } from '../load.ts'
import { until } from '../process/until.ts'
import { recordFigure, scaled } from '../soak.ts'
import {
  type Fleet,
  type FleetKey,
  makeKeys,
  makeNeighbours,
  patch,
  reasonsOf,
  startFleet,
  undisturbed,
  untilShared,
} from './cluster-fleet.ts'
import { growthOf, inTurn, mostAdmitted, perSecond, startTraffic, toldTwice } from './cluster-traffic.ts'
import { slotChangeSuite } from './slot-changes.ts'
import { counters, migration, versions } from './slot-migration.ts'
import { expectExact, faultsOf } from './windows.ts'

/** The fourth node has no slots. */
const fleet = await startFleet(t, { empty: 1 })
if (fleet) suite(fleet)

const byId = (keys: FleetKey[]) => Object.fromEntries(keys.map((key) => [key.id, key]))

function suite(fleet: Fleet) {
  const { cluster, urls, office } = fleet
  const moves = scaled(2, 120)

  /** Three keys of one slot, all three asked for while it moves step by step. */
  async function moveUnderLoad(t: Test, move: number) {
    const keys = await makeNeighbours(fleet, 3)
    // One of them has been changed before: it has a version to move, too.
    const changed = keys[2]!
    const manager = await makeKey(office, { userId: changed.userId })
    await patch(urls[0]!, manager, changed, { name: 'changed' })

    const slot = slotOf(changed.id)
    const from = await cluster.ownerOf(slot)
    const moving = await migration(cluster, slot, (from + 1 + (move % 2)) % 3)
    const steps = [
      () => moving.open(),
      () => moving.move(move % 4 < 2 ? versions : counters),
      () => moving.move(),
      () => moving.take(),
      () => moving.close(),
    ]
    const traffic = startTraffic(t, fleet, byId(keys))
    for (const step of steps) {
      await traffic.more()
      await step()
    }
    await traffic.more()
    const answers = await traffic.stop()
    t.equal(await cluster.ownerOf(slot, moving.to), moving.to)
    return { keys, answers }
  }

  t.test('while a slot moves under load its keys are counted exactly, all in Redis', async (t) => {
    const tookMs: number[] = []
    let counted = 0
    let off = 0
    for (let move = 0; move < moves; move++) {
      const { keys, answers } = await undisturbed(t, fleet, () => moveUnderLoad(t, move))
      const all = Object.values(answers).flat()
      tookMs.push(...all.map(({ tookMs }) => tookMs))
      t.strictSame(faultsOf(all, [1_000_000]), {}, 'every request is admitted, with its headers')
      for (const key of keys) off += await expectExact(t, key, answers[key.id]!, fleet.countIn)
      counted += keys.length
    }
    t.same(reasonsOf(fleet), [], 'no instance took a node for away')
    recordFigure(t, 'cluster-slot-moves', {
      moves,
      requests: tookMs.length,
      keys: counted,
      off,
      p99Ms: quantile(tookMs, 0.99),
    })
  })

  t.test('a limit is kept to the request while the slot of its key moves', async (t) => {
    const limit = 40
    const { keys, answers } = await undisturbed(t, fleet, async () => {
      const keys = await makeKeys(fleet, 3, { rateLimitRpm: limit, where: (slot) => slot < 5000 })
      const movings = await Promise.all(keys.map(({ id }) => migration(cluster, slotOf(id), 1)))
      const traffic = startTraffic(t, fleet, byId(keys))
      await traffic.more(6)
      for (const moving of movings) await moving.open()
      await traffic.more(24)
      for (const moving of movings) await moving.close()
      await traffic.more(24)
      return { keys, answers: await traffic.stop() }
    })
    for (const key of keys) {
      t.strictSame(faultsOf(answers[key.id]!, [limit]), {})
      await expectExact(t, key, answers[key.id]!, fleet.countIn)
    }
  })

  slotChangeSuite(t, fleet, 'cluster-slot-changes')

  t.test('a slot that has moved is asked for at its new node alone', async (t) => {
    const moved = async () => {
      const told = await Promise.all(cluster.redis.map((redis) => redis.info('errorstats')))
      return told.map((text) => Number(/errorstat_MOVED:count=(\d+)/.exec(text)?.[1] ?? 0)).join(' ')
    }
    const [key, ...others] = await makeKeys(fleet, 12)
    const slot = slotOf(key!.id)
    for (const one of [key!, ...others]) await inTurn(fleet, one, 3)
    const moving = await migration(cluster, slot, ((await cluster.ownerOf(slot)) + 1) % 3)
    await moving.open()
    await moving.close()
    await inTurn(fleet, key!, 3)
    const tookMs = performance.now()
    await until(
      'no node has to send a request on',
      async () => {
        const before = await moved()
        for (const one of [key!, ...others]) await inTurn(fleet, one, 3)
        return (await moved()) === before
      },
      2000,
    )
    t.pass(`after ${Math.round(performance.now() - tookMs)} ms`)
  })

  t.test(
    'a slot that moves to a node without slots loses no count, and is shared again in 2 s',
    async (t) => {
      const fresh = 3
      const limit = 60
      const [key] = await makeKeys(fleet, 1)
      const [limited] = await makeKeys(fleet, 1, { rateLimitRpm: limit })
      const movings = await Promise.all(
        [key!, limited!].map(({ id }) => migration(cluster, slotOf(id), fresh)),
      )
      const traffic = startTraffic(t, fleet, { key: key!, limited: limited! })
      await traffic.more(20)
      for (const moving of movings) await moving.open()
      // Longer than the 2 s after which a client looks at the slots again, and lets go of nodes that have none.
      await traffic.more(perSecond * 2.5)
      for (const moving of movings) await moving.close()
      const backMs = await untilShared(fleet)
      await traffic.more(20)
      const { key: ofKey, limited: ofLimited } = await traffic.stop()

      t.ok(backMs <= 2000, `back after ${Math.round(backMs)} ms`)
      t.strictSame(faultsOf(ofKey, [1_000_000]), {}, 'every request is admitted, with its headers')
      t.strictSame(faultsOf(ofLimited, [limit]), {}, 'and those of the key with a small limit 200 or 429')
      t.ok(mostAdmitted(ofLimited) <= limit, 'each instance keeps to the limit')
      t.strictSame(toldTwice(ofKey), [], 'and gives no number twice')
      t.equal(await growthOf(fleet, key!, 12), 12, 'the count goes on at the new node')
      t.equal(await cluster.ownerOf(slotOf(key!.id), fresh), fresh)
      const answers = [...ofKey, ...ofLimited]
      recordFigure(t, 'cluster-grows', { requests: answers.length, failed: failedOf(answers), backMs })
    },
  )
}
