/**
 * One and two instances behind a proxy: does the second one raise the cost of a request, and how
 * does Fastify alone compare?
 */
import { availableParallelism } from 'node:os'
import { singleCalls } from '../load/single-calls.ts'
import { connections, type Subject } from '../measure.ts'
import { withoutHttp } from '../operations/without-http.ts'
import { atMost, type Outcome } from '../outcome.ts'
import { cpuRatio, perRound } from '../ratios.ts'
import type { Rig } from '../rig.ts'
import { inRounds } from '../rounds.ts'
import { assertSameAnswer } from '../same-answer.ts'
import type { CandidateName } from '../servers/candidate.ts'
import { chooseProxy } from '../servers/proxy.ts'
import { asked, howMany } from './compare.ts'

const keys = 1000
/**
 * The two instances of `bare` share nothing, so what they cost beyond one is due to the machine.
 */
const names: CandidateName[] = ['latchkey', 'bare']
/**
 * Relative to `bare`. Some of it is ours: two instances split the requests into smaller batches.
 */
const increaseMax = 1.15
const singleCall = 'latchkey, a call for each request'
/** One core each for the load, the proxy, two instances, Redis and Postgres. */
const coresWanted = 6

export async function processes(rig: Rig): Promise<Outcome | null> {
  const startProxy = chooseProxy()
  if (startProxy === null) {
    rig.say('processes: skipped, neither nginx nor haproxy is on PATH')
    return null
  }
  const database = await rig.database('processes', keys)
  const subjects: Subject[] = []
  let through = ''
  for (const name of names) {
    const instances = [await rig.start(name, database), await rig.start(name, database)]
    for (const count of [1, 2]) {
      const behind = instances.slice(0, count)
      const proxy = await startProxy(
        rig.folder,
        behind.map(({ url }) => url),
      )
      rig.stopWithCandidates(() => proxy.stop())
      through = proxy.name
      subjects.push({
        name: nameOf(count, name),
        url: proxy.url,
        processes: behind,
        tokensFile: database.tokensFile,
        tokens: () => ({ first: 0, count: keys }),
      })
    }
  }
  await assertSameAnswer(await Promise.all(subjects.map(asked)))
  const results = await inRounds(rig, subjects)
  await rig.stopCandidates()
  const calls = await singleCalls(rig.redis.url, keys)
  rig.stopWithCandidates(async () => calls.close())
  const single = await inRounds(rig, [withoutHttp(singleCall, calls, connections)])
  await rig.stopCandidates()

  const cores = availableParallelism()
  const about = `${keys} keys in turn, ${howMany}, through ${through}. CPU is the sum of the instances, without the proxy.`
  const [one, two, bareOne, bareTwo] = names.flatMap((name) => [nameOf(1, name), nameOf(2, name)])
  return {
    name: 'processes',
    title: 'One and two instances',
    tables: [
      {
        title: 'One and two instances',
        about,
        results,
        ratios: [cpuRatio(results, two!, one!), cpuRatio(results, bareTwo!, bareOne!)],
      },
      {
        title: 'Redis with a call for each request',
        about: `The smallest batch: the counting script with one of ${keys} keys in each call, in the form for a cluster. ${connections} calls under way, without HTTP.`,
        results: single,
        ratios: [],
        figures: ['requestsPerS', 'p50Ms', 'p99Ms', 'redisCpuUs'],
      },
    ],
    targets: [
      atMost(
        'CPU per request of two instances by that of one, as a multiple of the same for bare',
        perRound(results, 'cpuUs', [two!, one!, bareTwo!, bareOne!], (a, b, c, d) => a / b / (c / d)),
        increaseMax,
        '×',
      ),
    ],
    notes:
      cores < coresWanted
        ? [
            `The load, the proxy, the instances, Redis and Postgres share ${cores} cores here: CPU per request means something, requests per second do not.`,
          ]
        : [],
  }
}

const nameOf = (count: number, name: CandidateName) => `${count} × ${name}`
