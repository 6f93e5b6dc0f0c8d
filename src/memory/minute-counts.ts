/**
 * Counts of the current minute in this process. They are the counter of an instance that runs
 * alone. Where Redis counts, they are the last counts seen from it, to continue from while it is
 * down.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { KeyCount, ScanOptions, VisitCounts } from '../stores.ts'

export interface MinuteCounts {
  /**
   * Adds hits and returns the new count: never less than the known count plus `hits`, nor than
   * `shared`, the count that the shared store reported. So a shared count that was lost (in a
   * restart) admits nothing twice. Without `shared`, returns 0 if there is no room for the key;
   * then nothing was counted.
   *
   * `knownAtSending`: the count that was known when the hits were sent, if reports may overtake each
   * other. Then a `shared` with these hits in it was not lost, and is returned although a higher count
   * is known by now.
   */
  add(keyId: string, minute: number, hits: number, shared?: number, knownAtSending?: number): number
  /**
   * Whether the shared store may lack counts of this minute or the one before it: hits were counted
   * without it, it has reported less than was known, or `markIncomplete` was called.
   */
  mayLackCounts(minute: number): boolean
  /** The shared store was down until now, and may have lost this minute and the one before it. */
  markIncomplete(minute: number): void
  /** The counts of this minute or the one before it, by key. */
  of(minute: number): ReadonlyMap<string, number>
  /** How many hits were added in this minute or the one before it, since it was last asked. */
  takeHits(minute: number): number
}

const none: ReadonlyMap<string, number> = new Map()

interface Slot {
  readonly minute: number
  readonly beganMs: number
  readonly counts: Map<string, number>
  hits: number
  mayLackCounts: boolean
}

/** A minute and the next one, less a second: when a third minute begins, it replaces the first. */
const slotLifetimeMs = 119_000

/** `keysMax`: distinct keys of one minute; about 100 bytes each. */
export function createMinuteCounts(keysMax = 1_000_000): MinuteCounts {
  // The newest first. Dropped by age and not when a later minute begins: the servers of a cluster may
  // be in different minutes.
  let slots: Slot[] = []

  function find(minute: number): Slot | undefined {
    for (const slot of slots) if (slot.minute === minute) return slot
  }

  function begin(minute: number): Slot {
    const beganMs = performance.now()
    const slot = { minute, beganMs, counts: new Map(), hits: 0, mayLackCounts: false }
    slots = [slot, ...slots.filter((one) => beganMs - one.beganMs < slotLifetimeMs)]
    return slot
  }

  const slotOf = (minute: number) => find(minute) ?? begin(minute)

  return {
    add(keyId, minute, hits, shared = 0, knownAtSending = Number.POSITIVE_INFINITY) {
      const slot = slotOf(minute)
      const known = slot.counts.get(keyId)
      const isFull = known === undefined && slot.counts.size >= keysMax
      if (isFull && shared === 0) return 0
      slot.hits += hits
      if (isFull) return shared
      const count = shared < knownAtSending + hits ? Math.max((known ?? 0) + hits, shared) : shared
      if (shared < count && hits + shared > 0) slot.mayLackCounts = true
      slot.counts.set(keyId, Math.max(known ?? 0, count))
      return count
    },
    mayLackCounts: (minute) => find(minute)?.mayLackCounts ?? false,
    markIncomplete(minute) {
      for (const one of [minute - 1, minute]) slotOf(one).mayLackCounts = true
    },
    of: (minute) => find(minute)?.counts ?? none,
    takeHits(minute) {
      const slot = find(minute)
      if (slot === undefined) return 0
      const { hits } = slot
      slot.hits = 0
      return hits
    },
  }
}

/** About a millisecond. Requests are answered between slices. */
const sliceMax = 2000

interface VisitOptions extends Omit<ScanOptions, 'share'> {
  /** Whether to read the count of this key. All by default. */
  isWanted?: (keyId: string) => boolean
}

/** Visits counts slice by slice. Resolves to how many were read; stops at the signal. */
export async function visitCounts(
  counts: ReadonlyMap<string, number>,
  visit: VisitCounts,
  { isWanted = () => true, signal, above = () => 0 }: VisitOptions,
): Promise<number> {
  let read = 0
  let visited = 0
  let seen = 0
  let slice: KeyCount[] = []
  const flush = async () => {
    await visit(slice, read - visited)
    visited = read
    slice = []
    await nextTurn()
  }
  for (const [keyId, count] of counts) {
    if (signal?.aborted) return visited
    if (isWanted(keyId)) {
      read++
      if (count > above()) slice.push({ keyId, count })
    }
    if (++seen % sliceMax === 0) await flush()
  }
  if (read > visited) await flush()
  return visited
}
