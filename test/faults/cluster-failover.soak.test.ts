// A Redis Cluster whose masters have replicas: one master is lost, its replica takes over, and the instances go over to it.
import t, { type Test } from 'tap'
import { until } from '../process/until.ts'
import { recordFigure, scaled } from '../soak.ts'
import { type Fleet, isDegraded, startFleet, untilShared } from './cluster-fleet.ts'
import { untilFollowing, untilOk, untilTakenOver } from './cluster-state.ts'
import { growthOf, switchMs } from './cluster-traffic.ts'
import {
  expectServed,
  expectSwift,
  lossOf,
  makeLossKeys,
  numbersOf,
  spendAll,
  startLossTraffic,
} from './node-loss.ts'

const rounds = scaled(1, 20)
const backMsMax = 2000
/** Of three shares of slots the second, and a slot of it. */
const share = 1
const slot = 8192

// As clusters are by default: from the moment a master is given up until its replica has taken over, no node takes any key.
const fleet = await startFleet(t, { replicas: 1 })
if (fleet) suite(fleet)

function suite(fleet: Fleet) {
  const { cluster, instances } = fleet

  async function failOver(t: Test, frozen: boolean) {
    const keys = await makeLossKeys(fleet, share)
    const master = await cluster.ownerOf(slot)
    const node = cluster.nodes[master]!
    await untilShared(fleet)
    const traffic = startLossTraffic(t, fleet, keys)
    await traffic.more(20)
    const admittedBeyond = await spendAll(fleet, share)

    const faultMs = performance.now()
    await (frozen ? node.freeze() : node.kill())
    const oneSaysSo = async () => (await Promise.all(instances.map(isDegraded))).includes(true)
    await until('the metric of an instance says so', oneSaysSo)
    await until('the switch is over', () => performance.now() > faultMs + switchMs)
    const replica = await untilTakenOver(cluster, slot, master)
    await untilOk(cluster, master)
    const backMs = await untilShared(fleet)
    const beyond = await admittedBeyond()
    const growth = await growthOf(fleet, keys.quiet, 12)

    // The old master comes back, and follows: it must lead nobody astray.
    await (frozen ? node.thaw() : node.restart())
    await untilFollowing(cluster, master)
    await untilOk(cluster)
    await traffic.more(20)
    await untilShared(fleet)
    const growthAfter = await growthOf(fleet, keys.quiet, 12)
    const answers = await traffic.stop()
    return {
      answers,
      faultMs,
      idleP99: traffic.idleP99(faultMs),
      backMs,
      beyond,
      growth,
      growthAfter,
      master,
      replica,
    }
  }

  async function round(t: Test, frozen: boolean) {
    const lost = await failOver(t, frozen)
    t.not(lost.replica, lost.master)
    expectServed(t, lost.answers)
    t.strictSame(lost.beyond, [], 'a key that has used up its minute stays refused')
    t.ok(lost.backMs <= backMsMax, `shared ${Math.round(lost.backMs)} ms after the cluster was ok`)
    t.equal(lost.growth, 12, 'its keys are counted by the new master, and once')
    t.equal(lost.growthAfter, 12, 'also when the old one has come back')
    const p99 = expectSwift(t, lost.answers, lost.faultMs, lost.idleP99)
    return lossOf(lost.answers, p99, lost.backMs)
  }

  t.test('when a replica takes over every key is shared again within two seconds', async (t) => {
    const done = []
    for (let number = 0; number < rounds; number++) done.push(await round(t, number % 2 === 1))
    recordFigure(t, 'cluster-failover', numbersOf(done))
  })
}
