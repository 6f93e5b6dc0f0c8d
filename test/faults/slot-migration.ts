// A slot's way to another node, step by step as `redis-cli --cluster reshard` takes it.
import type { RedisCluster } from '../services/index.ts'

export interface SlotMigration {
  readonly slot: number
  /** Indexes of `cluster.nodes`. */
  readonly from: number
  readonly to: number
  /** From now on the old node sends on whoever asks for a key that it does not have. */
  open(): Promise<void>
  /** Moves what is there now, or only names that match; gives the names. A name that the new node has already is a fault. */
  move(only?: RegExp): Promise<string[]>
  /** The new node has the slot; the others may not know it yet. */
  take(): Promise<void>
  /** Every node is told whose it is. */
  close(): Promise<void>
}

/** The names that `move` may be asked for. */
export const versions = /:v$/
export const counters = /:\d+$/

const keysMax = '1000'
const timeoutMs = '5000'

export async function migration(cluster: RedisCluster, slot: number, to: number): Promise<SlotMigration> {
  const { redis, nodes } = cluster
  const from = await cluster.ownerOf(slot)
  const source = redis[from]!
  const idOf = async (node: number) => String(await redis[node]!.call('CLUSTER', 'MYID'))
  const [sourceId, targetId] = [await idOf(from), await idOf(to)]
  const setSlot = (node: number, ...state: string[]) =>
    redis[node]!.call('CLUSTER', 'SETSLOT', String(slot), ...state)

  // In this order: a key that the old node sends on must be taken by the new one.
  async function open() {
    await setSlot(to, 'IMPORTING', sourceId)
    await setSlot(from, 'MIGRATING', targetId)
  }

  async function move(only = /(?:)/) {
    const there = (await source.call('CLUSTER', 'GETKEYSINSLOT', String(slot), keysMax)) as string[]
    const names = there.filter((name) => only.test(name))
    if (names.length > 0) {
      const address = ['127.0.0.1', String(nodes[to]!.port)]
      await source.call('MIGRATE', ...address, '', '0', timeoutMs, 'KEYS', ...names)
    }
    return names
  }

  async function take() {
    await move()
    await setSlot(to, 'NODE', targetId)
  }

  async function close() {
    await take()
    for (const node of nodes.keys()) if (node !== to) await setSlot(node, 'NODE', targetId)
  }

  return { slot, from, to, open, move, take, close }
}
