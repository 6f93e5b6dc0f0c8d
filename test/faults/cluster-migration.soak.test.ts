// A Redis Cluster that moves slots while their keys are in use, as is done to grow it or to spread
// its load.
import slotOf from 'cluster-key-slot'
import t, { type Test } from 'tap'
import { failedOf, p99, type Sample } from '../load.ts'
import { until } from '../process/until.ts'
import { recordFigure, scaled } from '../soak.ts'
import { inexact, stepsBack, tally, wrongAnswers } from './answers.ts'
import {
  changesOf,
  changesTo,
  lookAgain,
  makePerson,
  type Person,
  slowestMs,
  type Watched,
  watchChange,
  wrongWith,
} from './changes.ts'
import {
  type ClusterFleet,
  counters,
  growthOf,
  inTurn,
  moveSlot,
  perSecond,
  type SlotMove,
  startClusterFleet,
  startTraffic,
  versions,
} from './cluster.ts'
import { type FleetKey, isSlow, makeKeys, outages, plenty, undisturbed, untilShared, warm } from './fleet.ts'

/** The fourth node has no slots. */
const fleet = await startClusterFleet(t, { empty: 1 })
if (fleet) suite(fleet)

function suite(fleet: ClusterFleet) {
  const { cluster, urls } = fleet
  const moveTo = ({ id }: FleetKey, to: number) => moveSlot(cluster, slotOf(id), to)
  const byId = (keys: FleetKey[]) => Object.fromEntries(keys.map((key) => [key.id, key]))

  /**
   * Three keys of one user in one slot. The last was changed before, so it has a version to move,
   * too.
   */
  async function makeNeighbours(): Promise<FleetKey[]> {
    const bySlot = new Map<number, FleetKey[]>()
    const { userId, key } = await makePerson(fleet)
    for (;;) {
      for (const made of await makeKeys(fleet, 50, { userId })) {
        const neighbours = [...(bySlot.get(slotOf(made.id)) ?? []), made]
        bySlot.set(slotOf(made.id), neighbours)
        if (neighbours.length < 3) continue
        await changesOf({ manager: key, key: neighbours[2]! }).name().make(urls[0]!)
        return neighbours
      }
    }
  }

  async function moveUnderLoad(t: Test, n: number) {
    const keys = await makeNeighbours()
    const from = await cluster.ownerOf(slotOf(keys[0]!.id))
    const moving = await moveTo(keys[0]!, (from + 1 + (n % 2)) % 3)
    const traffic = startTraffic(t, fleet, byId(keys))
    const steps = [
      () => moving.open(),
      () => moving.move(n % 4 < 2 ? versions : counters),
      () => moving.move(),
      () => moving.take(),
      () => moving.close(),
    ]
    for (const step of steps) {
      await traffic.more()
      await step()
    }
    await traffic.more()
    const { answers } = await traffic.stop()
    t.equal(await cluster.ownerOf(moving.slot, moving.to), moving.to)
    return { keys, answers }
  }

  t.test('while a slot moves under load its keys are counted exactly, all in Redis', async (t) => {
    const samples: Sample[] = []
    let [keyCount, off] = [0, 0]
    const moves = scaled(2, 120)
    for (let n = 0; n < moves; n++) {
      const { keys, answers } = await undisturbed(t, fleet, () => moveUnderLoad(t, n))
      const all = Object.values(answers).flat()
      samples.push(...all)
      t.strictSame(tally([...wrongAnswers(all, plenty), ...refusals(all)]), {}, 'every request is admitted')
      for (const key of keys) {
        const faults = await inexact(fleet, key, answers[key.id]!, plenty)
        t.strictSame(faults, [], `${answers[key.id]!.length} requests are counted exactly`)
        off += faults.length
      }
      keyCount += keys.length
    }
    t.same(
      outages(fleet).filter((line) => !isSlow(line)),
      [],
      'no instance took a node for lost',
    )
    const requests = samples.length
    recordFigure(t, 'cluster-slot-moves', { moves, requests, keys: keyCount, off, p99Ms: p99(samples) })
  })

  t.test('a change that is answered while the slot of its key moves holds on every instance', async (t) => {
    /** How far the move has come when something is changed. */
    const stages: ((moving: SlotMove) => Promise<unknown>)[] = [
      (moving) => moving.open(),
      (moving) => moving.open().then(() => moving.move(versions)),
      (moving) => moving.open().then(() => moving.move(counters)),
      (moving) => moving.open().then(() => moving.move()),
      (moving) => moving.open().then(() => moving.take()),
      (moving) => moving.open().then(() => moving.close()),
    ]
    const changed: Watched[] = []
    const again: Watched[] = []

    /**
     * With keys of one node in different slots, because slots that move at once go from one node to
     * one other. A node that both gives and takes slots would claim them all again with a newer
     * epoch, even those that it has just given away.
     */
    async function makePeopleOn(node: number, count: number): Promise<Person[]> {
      const bySlot = new Map<number, Person>()
      while (bySlot.size < count) {
        const person = await makePerson(fleet)
        const slot = slotOf(person.key.id)
        if ((await cluster.ownerOf(slot)) === node) bySlot.set(slot, person)
      }
      return [...bySlot.values()]
    }

    for (let round = 0; round < scaled(1, 40); round++) {
      for (const [step, stage] of stages.entries()) {
        const from = (round + step) % 3
        const people = await makePeopleOn(from, 5)
        // The last has a version already.
        const last = people.at(-1)!
        await changesOf(last).name().make(urls[0]!)
        const changes = [...changesTo(fleet, people.slice(0, -1)), changesOf(last).limit()]
        await Promise.all(
          people.map(async ({ key }, i) => {
            const moving = await moveTo(key, (from + 1) % 3)
            await warm(fleet, key)
            await stage(moving)
            await warm(fleet, key)
            changed.push(await watchChange(fleet, 0, changes[i]!))
            await moving.close()
            again.push(await lookAgain(fleet, changes[i]!))
          }),
        )
      }
    }
    const wrong = { ...wrongWith(changed), ...wrongWith(again) }
    t.same(wrong, {}, 'at once, and at the new node')
    t.ok(slowestMs(changed) < 3000, `no change had to wait until copies expire: ${slowestMs(changed)} ms`)
    const wrongCount = Object.values(wrong).reduce((sum, count) => sum + count, 0)
    const figure = { changes: changed.length, wrong: wrongCount, slowestMs: slowestMs(changed) }
    recordFigure(t, 'cluster-slot-changes', figure)
  })

  t.test('a slot that has moved is asked for at its new node alone', async (t) => {
    const redirected = async () => {
      const stats = await Promise.all(cluster.redis.map((redis) => redis.info('errorstats')))
      return stats.map((text) => Number(/errorstat_MOVED:count=(\d+)/.exec(text)?.[1] ?? 0)).join(' ')
    }
    const keys = await makeKeys(fleet, 12)
    const useAll = async () => {
      for (const key of keys) await inTurn(fleet, key, urls.length)
    }
    await useAll()
    const moving = await moveTo(keys[0]!, ((await cluster.ownerOf(slotOf(keys[0]!.id))) + 1) % 3)
    await moving.open()
    await moving.close()
    await inTurn(fleet, keys[0]!, urls.length)
    const isQuiet = async () => {
      const before = await redirected()
      await useAll()
      return (await redirected()) === before
    }
    await until('no node has to redirect a request', isQuiet, 2000)
    t.pass('within 2 s')
  })

  t.test(
    'a slot that moves to a node without slots loses no count, and is shared again in 2 s',
    async (t) => {
      const fresh = 3
      const limit = 60
      const [key] = await makeKeys(fleet, 1)
      const [limited] = await makeKeys(fleet, 1, { rateLimitRpm: limit })
      const movings = [await moveTo(key!, fresh), await moveTo(limited!, fresh)]
      const traffic = startTraffic(t, fleet, { key: key!, limited: limited! })
      await traffic.more(20)
      for (const moving of movings) await moving.open()
      // Longer than the 2 s after which a client looks at the slots again, and disconnects from
      // nodes that have none.
      await traffic.more(perSecond * 2.5)
      for (const moving of movings) await moving.close()
      const backMs = await untilShared(fleet.instances)
      await traffic.more(20)
      const { answers } = await traffic.stop()

      t.ok(backMs <= 2000, `back after ${Math.round(backMs)} ms`)
      const ofKey = [
        ...wrongAnswers(answers.key, plenty),
        ...refusals(answers.key),
        ...stepsBack(answers.key, plenty),
      ]
      t.strictSame(tally(ofKey), {}, 'every request is admitted, and no instance goes back in its count')
      const ofLimited = [...wrongAnswers(answers.limited, limit), ...stepsBack(answers.limited, limit)]
      t.strictSame(tally(ofLimited), {}, 'each instance keeps to a small limit')
      t.equal(await growthOf(fleet, key!, 12), 12, 'the count goes on at the new node')
      t.equal(await cluster.ownerOf(slotOf(key!.id), fresh), fresh)
      const all = Object.values(answers).flat()
      recordFigure(t, 'cluster-grows', { requests: all.length, failed: failedOf(all), backMs })
    },
  )
}

const refusals = (samples: readonly Sample[]): string[] =>
  samples.flatMap(({ status }) => (status === 429 ? 'refused far below its limit' : []))
