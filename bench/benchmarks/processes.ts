/** One and two instances behind a proxy: whether the second one makes each request dearer. */
import { availableParallelism } from 'node:os'
import type { Subject } from '../measure.ts'
import type { Outcome } from '../outcome.ts'
import type { Rig } from '../rig.ts'
import { inTurns } from '../rounds.ts'
import { chooseProxy } from '../servers/proxy.ts'
import { howMany } from './compare.ts'

const keys = 1000
/** Load, proxy, two instances, Redis and Postgres, each its own core. */
const coresWanted = 6

export async function processes(rig: Rig): Promise<Outcome | null> {
  const startProxy = chooseProxy()
  if (startProxy === null) {
    rig.say('processes: not run, there is neither nginx nor haproxy on PATH')
    return null
  }
  const database = await rig.database('processes', keys)
  const instances = [await rig.start('latchkey', database), await rig.start('latchkey', database)]
  const subjects: Subject[] = []
  for (const count of [1, 2]) {
    const behind = instances.slice(0, count)
    const proxy = await startProxy(
      rig.folder,
      behind.map(({ url }) => url),
    )
    rig.stopWithCandidates(() => proxy.stop())
    subjects.push({
      name: `${count} behind ${proxy.name}`,
      url: proxy.url,
      processes: behind,
      tokensFile: database.tokensFile,
      tokens: () => ({ first: 0, count: keys }),
    })
  }
  const results = await inTurns(rig, subjects)
  await rig.stopCandidates()

  const cores = availableParallelism()
  const about = `${keys} keys in turn, ${howMany}, through a proxy. CPU is that of all instances together, without the proxy.`
  return {
    name: 'processes',
    title: 'One and two instances',
    tables: [{ title: 'One and two instances', about, results }],
    targets: [],
    notes:
      cores < coresWanted
        ? [
            `This machine has ${cores} cores for the load, the proxy, the instances, Redis and Postgres together: only CPU per request is meaningful here, and requests per second are not.`,
          ]
        : [],
  }
}
