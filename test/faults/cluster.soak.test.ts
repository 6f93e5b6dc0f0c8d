// The service on a Redis Cluster, given by the URLs of its nodes: what holds on one Redis holds on
// three.
import slotOf from 'cluster-key-slot'
import t from 'tap'
import { recordFigure, scaled } from '../soak.ts'
import { changeEverything, figuresOf, inLanes, type Watched, wrongWith } from './changes.ts'
import { startClusterFleet } from './cluster.ts'
import { expectExact } from './exactness.ts'

const limits = [1, 2, 7, 50, 150, 500]
const keysOfEach = scaled(5, 50)

const fleet = await startClusterFleet(t)
if (fleet) {
  const { cluster } = fleet

  t.test('every key admits its limit, whichever node counts it, on three instances', async (t) => {
    const nodes = new Set<number>()
    const total = { requests: 0, keys: 0, off: 0 }
    for (let round = 0; round < scaled(1, 12); round++) {
      // A fifth more than the limit, and some. Not more at once than can be sent within a minute.
      for (const limit of limits) {
        const flood = { limit, requests: Math.ceil(limit * 1.2) + 5, atOnce: 2 }
        const options = { floods: Array(keysOfEach).fill(flood), wholeMinutes: 0, turnWithinMs: 0 }
        const { keys, requests, off } = await expectExact(t, fleet, options)
        total.requests += requests
        total.keys += keys.length
        total.off += off
        for (const { id } of keys) nodes.add(await cluster.ownerOf(slotOf(id)))
      }
    }
    t.equal(nodes.size, 3, 'every node counted some of the keys')
    recordFigure(t, 'cluster-exact', total)
  })

  t.test('a change of a key on one instance decides the next request on the others', async (t) => {
    const watched: Watched[] = []
    await inLanes(scaled(20, 2000), 6, async (n) => {
      const story = await changeEverything(fleet, n)
      watched.push(...story.watched)
    })
    const { changes, old, slowestS } = figuresOf(watched)
    t.same(wrongWith(watched), {}, 'none acts on the old state')
    t.ok(slowestS < 3, `no change had to wait until copies expire: ${slowestS} s`)
    recordFigure(t, 'cluster-changes', { changes, wrong: old, slowestMs: slowestS * 1000 })
  })
}
