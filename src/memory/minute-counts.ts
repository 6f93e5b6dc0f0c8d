/**
 * Counts of the current minute in this process. The counter of an instance that runs alone; and, where Redis counts, the
 * last counts seen from it, to continue from while it is down.
 */

export interface MinuteCounts {
  /**
   * Adds hits and returns the count after them: never less than the known count plus these, nor than `shared`, the count
   * that the shared store answered. So a shared count that was lost (a restart) does not admit anything twice.
   * Without `shared`, 0 where the key finds no room: then nothing was counted.
   */
  add(keyId: string, minute: number, hits: number, shared?: number): number
}

/** `keysMax`: distinct keys of one minute; about 100 bytes each. */
export function createMinuteCounts(keysMax = 1_000_000): MinuteCounts {
  // Two, by the minute's parity: at the boundary the servers of a cluster may answer for both minutes in turn.
  const minutes = [
    { minute: -1, counts: new Map<string, number>() },
    { minute: -1, counts: new Map<string, number>() },
  ]

  return {
    add(keyId, minute, hits, shared = 0) {
      const slot = minutes[minute % 2]!
      if (slot.minute !== minute) {
        slot.minute = minute
        slot.counts = new Map()
      }
      const known = slot.counts.get(keyId)
      if (known === undefined && slot.counts.size >= keysMax) return shared
      const count = Math.max((known ?? 0) + hits, shared)
      slot.counts.set(keyId, count)
      return count
    },
  }
}
