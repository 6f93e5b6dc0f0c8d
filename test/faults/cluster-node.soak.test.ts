// One node of a Redis Cluster dies or freezes, and none takes its place: the instances count its
// keys meanwhile, and those of the other nodes as if nothing were wrong.
import t, { type Test } from 'tap'
import { until } from '../process/until.ts'
import { recordFigure, scaled } from '../soak.ts'
import { inexact } from './answers.ts'
import { type ClusterFleet, growthOf, startClusterFleet, untilGivenUp, untilOk } from './cluster.ts'
import { expectServed, figuresOf, prepareLoss, switchMs } from './cluster-loss.ts'
import { isDegraded, isSlow, redisLines, undisturbed, untilShared } from './fleet.ts'

type Fault = 'killed' | 'frozen'

/**
 * Otherwise no node takes any key while one is down, and the instances count all keys by
 * themselves.
 */
const fleet = await startClusterFleet(t, { args: ['--cluster-require-full-coverage', 'no'] })

/** `untilGiven`: long enough for the other nodes to give it up, or only for a moment. */
async function loseNode(
  t: Test,
  { cluster, instances }: ClusterFleet,
  fault: Fault,
  index: number,
  untilGiven: boolean,
) {
  const node = cluster.nodes[index]!
  const { keys, quiet, traffic, ...prepared } = await prepareLoss(t, fleet!, index)
  await untilShared(instances)
  const linesNow = () => instances.map(({ log }) => redisLines(log))
  const linesBefore = linesNow()
  const linesSince = () => linesNow().map((lines, i) => lines.slice(linesBefore[i]!.length))

  const beganMs = performance.now()
  await (fault === 'killed' ? node.kill() : node.freeze())
  const isNoticed = async () => (await Promise.all(instances.map(isDegraded))).every(Boolean)
  await until('the metric of every instance says so', isNoticed)
  const admittedBeyond = await prepared.admittedBeyond()
  await until('the switch is over', () => performance.now() > beganMs + switchMs)
  if (untilGiven) await untilGivenUp(cluster, index)
  await traffic.more(20)
  const during = linesSince()

  await (fault === 'killed' ? node.restart() : node.thaw())
  await untilOk(cluster)
  const backMs = await untilShared(instances)
  await traffic.more(20)
  const { answers, idle } = await traffic.stop()
  return {
    keys,
    quiet,
    loss: { answers, idle, beganMs, backMs, admittedBeyond },
    during,
    lines: linesSince(),
  }
}

async function round(t: Test, fleet: ClusterFleet, fault: Fault, n: number) {
  const index = (n + 1) % 3
  const untilGiven = (fault === 'killed') === (n % 2 === 0)
  const isOfNode = (line: string) => line.includes(`:${fleet.cluster.nodes[index]!.port}: `)
  // Another node may see none of the others for a moment, and then refuses its own keys too
  // (CLUSTERDOWN).
  const isOfOthers = (line: string) => !isOfNode(line) && (isSlow(line) || /CLUSTERDOWN/.test(line))
  const lost = await undisturbed(t, fleet, () => loseNode(t, fleet, fault, index, untilGiven), isOfOthers)
  const { keys, quiet, loss, during, lines } = lost
  for (const role of ['other', 'otherLimited'] as const) {
    const key = keys[role]
    t.strictSame(
      await inexact(fleet, key, loss.answers[role], key.rate_limit_rpm),
      [],
      `${role}: counted exactly`,
    )
  }
  const ofNode = during.map((some) => some.filter(isOfNode).length)
  t.same(ofNode, [1, 1, 1], 'one line of each instance says so')
  t.ok(
    lines.every((some) => /in Redis again/.test(some.at(-1)!)),
    'and one that it is back',
  )
  t.equal(await growthOf(fleet, quiet, 12), 12, 'its keys are counted there again, and only there')
  return expectServed(t, loss)
}

if (fleet) {
  const rows = [
    ['cluster-node-killed', 'killed'],
    ['cluster-node-frozen', 'frozen'],
  ] as const
  for (const [row, fault] of rows) {
    t.test(
      `each instance counts the keys of a ${fault} node, and the others are counted exactly`,
      async (t) => {
        const losses = []
        for (let n = 0; n < scaled(1, 20); n++) losses.push(await round(t, fleet, fault, n))
        recordFigure(t, row, figuresOf(losses))
      },
    )
  }
}
