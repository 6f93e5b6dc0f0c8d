/** One and two instances behind a proxy: whether the second one makes each request dearer, and what it does to Fastify alone. */
import { availableParallelism } from 'node:os'
import type { Subject } from '../measure.ts'
import { atMost, type Outcome, resultOf } from '../outcome.ts'
import type { Rig } from '../rig.ts'
import { inTurns, type Result } from '../rounds.ts'
import type { CandidateName } from '../servers/candidate.ts'
import { chooseProxy } from '../servers/proxy.ts'
import { howMany } from './compare.ts'

const keys = 1000
/** `bare` shares nothing between its two: what they cost more than one is the machine's doing, and not theirs. */
const names: CandidateName[] = ['latchkey', 'bare']
/** Above what happens to `bare`; batches are shared by two, so some of it is ours. */
const dearerMax = 1.15
/** Load, proxy, two instances, Redis and Postgres, each its own core. */
const coresWanted = 6

export async function processes(rig: Rig): Promise<Outcome | null> {
  const startProxy = chooseProxy()
  if (startProxy === null) {
    rig.say('processes: not run, there is neither nginx nor haproxy on PATH')
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
  const results = await inTurns(rig, subjects)
  await rig.stopCandidates()

  const cores = availableParallelism()
  const about = `${keys} keys in turn, ${howMany}, through ${through}. CPU is that of all instances together, without the proxy.`
  return {
    name: 'processes',
    title: 'One and two instances',
    tables: [{ title: 'One and two instances', about, results }],
    targets: [
      atMost(
        'CPU per request of two instances, of that of one, as a multiple of what it is for bare',
        dearer(results, 'latchkey') / dearer(results, 'bare'),
        dearerMax,
        '×',
      ),
    ],
    notes:
      cores < coresWanted
        ? [
            `This machine has ${cores} cores for the load, the proxy, the instances, Redis and Postgres together: only CPU per request is meaningful here, and requests per second are not.`,
          ]
        : [],
  }
}

const nameOf = (count: number, name: CandidateName) => `${count} × ${name}`

/** How many times as much CPU a request takes of two as of one. */
const dearer = (results: Result[], name: CandidateName) =>
  resultOf(results, nameOf(2, name)).median.cpuUs / resultOf(results, nameOf(1, name)).median.cpuUs
