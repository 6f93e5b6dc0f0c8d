// Reading the counters of a real cluster while its slots move: none is missed, or the scan says so.
import { setTimeout as pause } from 'node:timers/promises'
import slotOf from 'cluster-key-slot'
import t, { type Test } from 'tap'
import { readWhileMoving } from '../../src/redis/slot-moves.ts'
import { minuteOf } from '../../src/rules/window.ts'
import type { KeyCount } from '../../src/stores.ts'
import { moveSlot } from '../faults/cluster.ts'
import { until } from '../process/until.ts'
import { startRedisCluster } from '../services/index.ts'
import { countAt, idOnNode } from './counters.ts'

/** What a cluster of one node answers to CLUSTER SLOTS, time after time. */
function reading(views: (Error | string)[]) {
  const seen = { passes: 0, masters: new Set(['a:1']) }
  const node = {
    async cluster() {
      const view = views.shift()
      if (view instanceof Error) throw view
      const [host, port] = view!.split(':')
      return [[0, 16_383, [host, Number(port)]]]
    },
  }
  const cluster = {
    nodes: () => [node],
    refreshSlotsCache(done: () => void) {
      setImmediate(() => {
        seen.masters = new Set(['b:2'])
        done()
      })
    },
  }
  const isWhole = readWhileMoving({
    cluster: cluster as never,
    masters: () => seen.masters,
    timeoutMs: 60_000,
    async pass() {
      seen.passes++
      return true
    },
  })
  return { isWhole, seen }
}

/** The third node has no slots. */
const cluster = await startRedisCluster(t, { masters: 2, empty: 1 })

if (cluster) {
  /** Each test has a minute of its own. */
  let minutes = 0

  /** Each test moves one slot of the first node, and then moves it back. */
  async function beginMove(id: string, to: number) {
    const moving = await moveSlot(cluster!, slotOf(id), to)
    await moving.open()
    await moving.move()
    return moving
  }
  const move = async (id: string, to: number) => (await beginMove(id, to)).close()

  /** Counters of a minute: those of the first node are read in several slices, those of the second in one. */
  async function counting(t: Test) {
    const { counter, untilShared } = countAt(t, cluster!.urls.slice(0, 2).join())
    await untilShared()
    const minute = minuteOf(await counter.now()) + 5 + minutes++
    const ids = Array.from({ length: 1500 }, (_, i) => idOnNode(i === 0 ? 1 : 0, 2))
    const put = (id: string, i: number) =>
      cluster!.redis[i === 0 ? 1 : 0]!.set(`rl:{${id}}:${minute}`, '1', 'EX', 100)
    await Promise.all(ids.map(put))
    const seen = new Set<string>()
    const ofSecondNode = (slice: KeyCount[]) => slice.some(({ keyId }) => keyId === ids[0])
    return { counter, minute, ids, ofSecondNode, seen, missed: () => ids.filter((id) => !seen.has(id)) }
  }

  t.test('a scan is not complete if a slot moves whenever it is read', async (t) => {
    const { counter, minute, ids, ofSecondNode } = await counting(t)
    let to = 0
    const scan = await counter.scan(
      minute,
      async (slice) => {
        if (!ofSecondNode(slice)) return
        to = 1 - to
        await move(ids[1]!, to)
      },
      { share: 1 },
    )
    t.match(scan, { complete: false, mode: 'shared', fault: null })
    await move(ids[1]!, 0)
  })

  t.test('a scan for the highest counts reads them once', async (t) => {
    const { counter, minute, ids, ofSecondNode } = await counting(t)
    let visits = 0
    const scan = await counter.scan(
      minute,
      async (slice) => {
        if (!ofSecondNode(slice)) return
        visits++
        await move(ids[1]!, 1)
      },
      { share: 1, above: () => 0 },
    )
    t.match([scan, visits], [{ complete: true }, 1])
    await move(ids[1]!, 0)
  })

  for (const { when, to, staysOpenMs } of [
    { when: 'while it reads', to: 1, staysOpenMs: 0 },
    { when: 'until shortly after it', to: 1, staysOpenMs: 100 },
    { when: 'to a node that had none', to: 2, staysOpenMs: 0 },
  ])
    t.test(`a complete scan has missed no counter of a slot that moved ${when}`, async (t) => {
      const { counter, minute, ids, ofSecondNode, seen, missed } = await counting(t)
      let moved: string | undefined
      let closed: Promise<void> | undefined
      const visit = async (slice: KeyCount[]) => {
        for (const { keyId } of slice) seen.add(keyId)
        if (moved !== undefined || ofSecondNode(slice)) return
        await until('the second node is read', () => seen.has(ids[0]!))
        moved = missed()[0]!
        const moving = await beginMove(moved, to)
        closed = pause(staysOpenMs).then(moving.close)
        if (staysOpenMs === 0) await closed
      }
      let scans = 0
      await until('a scan is complete', async () => {
        scans++
        return (await counter.scan(minute, visit, { share: 1 })).complete
      })
      await closed
      // A new node is not read before it is known to count.
      if (to !== 2) t.equal(scans, 1)
      t.strictSame(missed(), [])
      t.equal(await cluster.ownerOf(slotOf(moved!)), to)
      // A node that loses its last slot becomes a replica.
      if (to !== 2) await move(moved!, 0)
    })
}

for (const [what, views, whole, passes] of [
  ['that stay', ['a:1', 'a:1'], true, 1],
  ['that have moved to a new master', ['a:1', 'b:2', 'b:2'], true, 2],
  ['of which the node cannot tell before', [new Error('gone'), 'a:1'], false, 1],
  ['of which the node cannot tell afterwards', ['a:1', new Error('gone')], false, 1],
  ['of a node that does not know its address', [':1', ':1', ':1', ':1'], false, 3],
] as const)
  t.test(`slots ${what} make a pass ${whole ? 'whole' : 'incomplete'}`, async (t) => {
    const { isWhole, seen } = reading([...views])
    t.strictSame([await isWhole, seen.passes], [whole, passes])
  })
