/**
 * Reads a whole cluster while its slots move. A pass misses a key that leaves one node before the pass
 * gets to it, and reaches another one after the pass has gone by.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Cluster } from './ioredis.ts'
import { type Servers, slots } from './servers.ts'
import { withTimeout } from './with-timeout.ts'

/** Most slots move once, so a second pass is usually enough. */
const passesMax = 3

/**
 * A slot changes its node when all its keys have moved. redis-cli moves one slot at a time, which takes
 * some milliseconds.
 */
const moveMs = 250

interface Options {
  cluster: Cluster
  masters: Servers['masters']
  timeoutMs: number
  /** Reads all masters. Resolves to whether it could. */
  pass: () => Promise<boolean>
}

/** Repeats the pass until each slot has stayed on one node during a pass. Resolves to whether it did. */
export async function readWhileMoving({ cluster, masters, timeoutMs, pass }: Options): Promise<boolean> {
  const owners = () => withTimeout(slotOwners(cluster), timeoutMs).catch(() => null)
  let moving = Array.from({ length: slots }, (_, slot) => slot)
  let before = await owners()
  for (let passes = 0; passes < passesMax; passes++) {
    const read = masters()
    if (!(await pass())) return false
    await pause(moveMs)
    const after = await owners()
    if (before === null || after === null) return false
    const from = before
    moving = moving.filter((slot) => from[slot] !== after[slot] || !read.has(after[slot]!))
    if (moving.length === 0) return true
    // There may be new masters.
    await new Promise((resolve) => cluster.refreshSlotsCache(resolve))
    before = after
  }
  return false
}

/** By slot, the master that has it, or `disputed` if they do not agree. */
async function slotOwners(cluster: Cluster): Promise<(string | undefined)[]> {
  const views = await Promise.all(cluster.nodes('master').map((node) => node.cluster('SLOTS')))
  const owners = Array<string | undefined>(slots)
  for (const [first, last, master] of views.flat()) {
    // A node may not know its own address.
    if (!master?.[0]) continue
    const name = `${master[0]}:${master[1]}`
    for (let slot = first; slot <= last; slot++)
      owners[slot] = (owners[slot] ?? name) === name ? name : 'disputed'
  }
  return owners
}
