/**
 * Counts of the current minute in this process. They are the counter of an instance that runs
 * alone. Where Redis counts, they are the last counts seen from it, to continue from while it is
 * down.
 */

export interface MinuteCounts {
  /**
   * Adds hits and returns the new count: never less than the known count plus `hits`, nor than
   * `shared`, the count that the shared store reported. So a shared count that was lost (in a
   * restart) admits nothing twice. Without `shared`, returns 0 if there is no room for the key;
   * then nothing was counted.
   */
  add(keyId: string, minute: number, hits: number, shared?: number): number
}

/** `keysMax`: distinct keys of one minute; about 100 bytes each. */
export function createMinuteCounts(keysMax = 1_000_000): MinuteCounts {
  // Two, by the minute's parity: around the turn of a minute, the servers of a cluster may report
  // either minute.
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
