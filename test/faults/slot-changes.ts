// Changes of keys while the slots they are counted in move: what has been answered holds, however far the slot's way is.
import slotOf from 'cluster-key-slot'
import type { Test } from 'tap'
import { deleteUser, makeKey } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { recordFigure, scaled } from '../soak.ts'
import { type Fleet, type FleetKey, makeKeys, patch, verify } from './cluster-fleet.ts'
import { counters, migration, type SlotMigration, versions } from './slot-migration.ts'

const changeRounds = scaled(1, 40)

export function slotChangeSuite(t: Test, fleet: Fleet, row: 'cluster-slot-changes'): void {
  const { cluster, urls, office } = fleet

  /** How far the slot's way is when something is changed. */
  const stages: Record<string, (moving: SlotMigration) => Promise<unknown>> = {
    'is opened': (moving) => moving.open(),
    'has moved the versions': (moving) => moving.open().then(() => moving.move(versions)),
    'has moved the counters': (moving) => moving.open().then(() => moving.move(counters)),
    'has moved all': (moving) => moving.open().then(() => moving.move()),
    'is taken by the new node': (moving) => moving.open().then(() => moving.take()),
    'is closed': (moving) => moving.open().then(() => moving.close()),
  }

  type Change = (key: FleetKey, manager: FleetKey) => Promise<{ status: number; limit?: string }>

  const limitTo =
    (limit: number): Change =>
    async (key, manager) => {
      await patch(urls[0]!, manager, key, { rate_limit_rpm: limit })
      return { status: 200, limit: String(limit) }
    }
  const changes: Record<string, Change> = {
    'a limit': limitTo(77),
    'a limit of a key that was changed before': limitTo(78),
    'a revocation': async (key, manager) => {
      const { status } = await ask(`DELETE ${urls[0]}/v1/keys/${key.id}`, { token: manager.token })
      if (status !== 200) throw new Error(`DELETE answered ${status}`)
      return { status: 401 }
    },
    "an owner's deletion": async (key) => {
      await deleteUser(office, key.userId)
      return { status: 401 }
    },
  }

  t.test('a change that is answered while the slot of its key moves holds on every instance', async (t) => {
    const faults: string[] = []
    let slowestMs = 0
    let made = 0

    /**
     * Of one node, in slots of their own: those that move at once go from the same node to the same. One that both gives slots and
     * takes some would claim them all once more with a newer epoch, among them what it has just given and not yet heard of.
     */
    async function keysOn(node: number, count: number): Promise<FleetKey[]> {
      const bySlot = new Map<number, FleetKey>()
      while (bySlot.size < count) {
        const [key] = await makeKeys(fleet, 1)
        const slot = slotOf(key!.id)
        if ((await cluster.ownerOf(slot)) === node) bySlot.set(slot, key!)
      }
      return [...bySlot.values()]
    }

    async function story(stage: string, what: string, key: FleetKey, to: number) {
      const manager = await makeKey(office, { userId: key.userId })
      if (/before/.test(what)) await patch(urls[0]!, manager, key, { name: 'changed' })
      const moving = await migration(cluster, slotOf(key.id), to)
      const expectAll = async (when: string, status: number, limit?: string) => {
        const answers = await Promise.all(urls.map((url) => verify(url, key.token)))
        for (const answer of answers) {
          const told = answer.headers.get('x-ratelimit-limit') ?? undefined
          if (answer.status === status && (limit === undefined || told === limit)) continue
          faults.push(`${what}, the slot ${stage}, ${when}: ${answer.status} with a limit of ${told}`)
        }
      }
      await expectAll('before', 200, '1000000')
      await stages[stage]!(moving)
      await expectAll('still before', 200, '1000000')
      const beganMs = performance.now()
      const { status, limit } = await changes[what]!(key, manager)
      slowestMs = Math.max(slowestMs, performance.now() - beganMs)
      await expectAll('at once', status, limit)
      await moving.close()
      await expectAll('at the new node', status, limit)
      made++
    }

    for (let round = 0; round < changeRounds; round++) {
      for (const [step, stage] of Object.keys(stages).entries()) {
        const whats = Object.keys(changes)
        const from = (round + step) % 3
        const keys = await keysOn(from, whats.length)
        await Promise.all(whats.map((what, i) => story(stage, what, keys[i]!, (from + 1) % 3)))
      }
    }
    t.same(faults, [])
    t.ok(slowestMs < 3000, `no change had to wait until copies grow too old: ${Math.round(slowestMs)} ms`)
    recordFigure(t, row, { changes: made, wrong: faults.length, slowestMs })
  })
}
