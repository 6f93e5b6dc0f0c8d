// A Redis Cluster whose masters have replicas: one master is lost, its replica takes over, and the
// instances follow.
import t, { type Test } from 'tap'
import { until } from '../process/until.ts'
import { recordFigure, scaled } from '../soak.ts'
import {
  type ClusterFleet,
  growthOf,
  startClusterFleet,
  untilFollowing,
  untilOk,
  untilTakenOver,
} from './cluster.ts'
import { expectServed, figuresOf, prepareLoss, switchMs } from './cluster-loss.ts'
import { isDegraded, untilShared } from './fleet.ts'

/** Of three shares of slots the second, and a slot of it. */
const share = 1
const slot = 8192

/**
 * As clusters are by default: from the moment a master is given up until its replica has taken
 * over, no node takes any key.
 */
const fleet = await startClusterFleet(t, { replicas: 1 })

async function round(t: Test, { cluster, instances }: ClusterFleet, isFrozen: boolean) {
  const master = await cluster.ownerOf(slot)
  const node = cluster.nodes[master]!
  await untilShared(instances)
  const { quiet, traffic, ...prepared } = await prepareLoss(t, fleet!, share)

  const beganMs = performance.now()
  await (isFrozen ? node.freeze() : node.kill())
  const isNoticed = async () => (await Promise.all(instances.map(isDegraded))).includes(true)
  await until('the metric of an instance says so', isNoticed)
  await until('the switch is over', () => performance.now() > beganMs + switchMs)
  t.not(await untilTakenOver(cluster, slot, master), master)
  await untilOk(cluster, master)
  const backMs = await untilShared(instances)
  const admittedBeyond = await prepared.admittedBeyond()
  t.equal(await growthOf(fleet!, quiet, 12), 12, 'the new master counts its keys, and once')

  // The old master comes back, and follows: it must mislead no instance.
  await (isFrozen ? node.thaw() : node.restart())
  await untilFollowing(cluster, master)
  await untilOk(cluster)
  await traffic.more(20)
  await untilShared(instances)
  t.equal(await growthOf(fleet!, quiet, 12), 12, 'also when the old one is back')
  return expectServed(t, { ...(await traffic.stop()), beganMs, backMs, admittedBeyond })
}

if (fleet) {
  t.test('when a replica takes over every key is shared again within two seconds', async (t) => {
    const losses = []
    for (let n = 0; n < scaled(1, 20); n++) losses.push(await round(t, fleet, n % 2 === 1))
    recordFigure(t, 'cluster-failover', figuresOf(losses))
  })
}
