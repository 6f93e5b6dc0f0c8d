/**
 * Counts of the current minute in this process. The counter of an instance that runs alone; and, where Redis counts, the
 * last counts seen from it, to go on from while it is away.
 */

/** Distinct keys of one minute; about 100 bytes each. */
const keysMax = 1_000_000

export interface MinuteCounts {
  /**
   * Adds hits and gives the count after them: never less than what was known plus these, nor than `shared`, the count
   * that the shared store answered. So a shared count that was lost (a restart) does not admit anything twice.
   */
  add(keyId: string, minute: number, hits: number, shared?: number): number
  /** Whether a key not yet seen in this minute would find no room. */
  readonly full: boolean
}

export function createMinuteCounts(): MinuteCounts {
  // Two, by the minute's parity: at the boundary the servers of a cluster may answer for both minutes in turn.
  const minutes = [
    { minute: -1, counts: new Map<string, number>() },
    { minute: -1, counts: new Map<string, number>() },
  ]
  let newest = 0

  return {
    add(keyId, minute, hits, shared = 0) {
      newest = minute % 2
      const slot = minutes[newest]!
      if (slot.minute !== minute) {
        slot.minute = minute
        slot.counts = new Map()
      }
      const known = slot.counts.get(keyId)
      const count = Math.max((known ?? 0) + hits, shared)
      if (known !== undefined || slot.counts.size < keysMax) slot.counts.set(keyId, count)
      return count
    },
    get full() {
      return minutes[newest]!.counts.size >= keysMax
    },
  }
}
