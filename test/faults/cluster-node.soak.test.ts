// One node of a Redis Cluster dies or freezes, and none takes its place: its keys are counted by the instances meanwhile, and
// those of the other nodes as if nothing were.
import t, { type Test } from 'tap'
import { until } from '../process/until.ts'
import { recordFigure, scaled } from '../soak.ts'
import {
  type Fleet,
  isDegraded,
  isSlow,
  linesOf,
  startFleet,
  undisturbed,
  untilShared,
} from './cluster-fleet.ts'
import { untilGivenUp, untilOk } from './cluster-state.ts'
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
import { expectExact } from './windows.ts'

const rounds = scaled(1, 20)
const backMsMax = 2000

/** Otherwise no node takes any key while one is away, and the instances count all keys by themselves. */
const fleet = await startFleet(t, { args: ['--cluster-require-full-coverage', 'no'] })
if (fleet) suite(fleet)

function suite(fleet: Fleet) {
  const { cluster, instances } = fleet
  const faults = {
    killed: { begin: 'kill', end: 'restart' },
    frozen: { begin: 'freeze', end: 'thaw' },
  } as const

  async function loseNode(t: Test, fault: keyof typeof faults, index: number, untilLost: boolean) {
    const node = cluster.nodes[index]!
    const { begin, end } = faults[fault]
    const keys = await makeLossKeys(fleet, index)
    const traffic = startLossTraffic(t, fleet, keys)
    await traffic.more(20)
    const admittedBeyond = await spendAll(fleet, index)

    await untilShared(fleet)
    const linesBefore = instances.map((instance) => linesOf(instance).length)
    const linesSince = () => instances.map((instance, i) => linesOf(instance).slice(linesBefore[i]))
    const faultMs = performance.now()
    await node[begin]()
    const allSaySo = async () => (await Promise.all(instances.map(isDegraded))).every(Boolean)
    await until('the metric of every instance says so', allSaySo)
    const beyond = await admittedBeyond()
    await until('the switch is over', () => performance.now() > faultMs + switchMs)
    if (untilLost) await untilGivenUp(cluster, index)
    await traffic.more(20)
    const meanwhile = linesSince()

    await node[end]()
    await untilOk(cluster)
    const backMs = await untilShared(fleet)
    await traffic.more(20)
    const answers = await traffic.stop()
    const idleP99 = traffic.idleP99(faultMs)
    return { keys, answers, beyond, faultMs, idleP99, backMs, meanwhile, lines: linesSince() }
  }

  async function round(t: Test, fault: keyof typeof faults, number: number) {
    const index = (number + 1) % 3
    // A moment, and long enough for the others to give the node up, by turns.
    const untilLost = (fault === 'killed') === (number % 2 === 0)
    const isOfIt = (line: string) => line.includes(`:${cluster.nodes[index]!.port}: `)
    // Another node may see neither of its fellows for a moment, and then refuses its own keys too (CLUSTERDOWN).
    const isOfOthers = (line: string) => !isOfIt(line) && (isSlow(line) || /CLUSTERDOWN/.test(line))
    const lost = await undisturbed(t, fleet, () => loseNode(t, fault, index, untilLost), isOfOthers)
    const { keys, answers } = lost
    expectServed(t, answers)
    for (const role of ['other', 'otherLimited'] as const) {
      await expectExact(t, keys[role], answers[role], fleet.countIn)
    }
    t.strictSame(lost.beyond, [], 'a key that has used up its minute stays refused')
    t.same(
      lost.meanwhile.map((lines) => lines.filter(isOfIt).length),
      [1, 1, 1],
      'one line of each instance says so',
    )
    t.ok(
      lost.lines.every((lines) => /in Redis again/.test(lines.at(-1)!)),
      'and one that it is back',
    )
    const p99 = expectSwift(t, answers, lost.faultMs, lost.idleP99)
    t.ok(lost.backMs <= backMsMax, `shared ${Math.round(lost.backMs)} ms after the cluster was ok`)
    t.equal(await growthOf(fleet, keys.quiet, 12), 12, 'its keys are counted there again, and only there')
    return lossOf(answers, p99, lost.backMs)
  }

  for (const [row, fault] of [
    ['cluster-node-killed', 'killed'],
    ['cluster-node-frozen', 'frozen'],
  ] as const) {
    t.test(`the keys of a ${fault} node are counted by each instance, and the others exactly`, async (t) => {
      const done = []
      for (let number = 0; number < rounds; number++) done.push(await round(t, fault, number))
      recordFigure(t, row, numbersOf(done))
    })
  }
}
