/** The highest counts of a minute, out of any number of counters, in bounded memory. */
import type { KeyCount } from '../stores.ts'

export interface TopCounts {
  /** Of two counts of one key, the higher one stays: counts only rise. */
  add(slice: readonly KeyCount[]): void
  /** Counts up to this need not be added. */
  floor(): number
  /** Highest first, at most `max`. */
  highest(max: number): KeyCount[]
}

/** Remembers at least the `keep` highest counts, at most twice as many. */
export function createTopCounts(keep: number): TopCounts {
  let counts = new Map<string, number>()
  /** Keys that are not among the highest any more have at most this count. */
  let floor = 0

  const highest = (max: number) =>
    [...counts]
      .map(([keyId, count]) => ({ keyId, count }))
      .sort((a, b) => b.count - a.count)
      .slice(0, max)

  return {
    add(slice) {
      for (const { keyId, count } of slice) {
        const known = counts.get(keyId) ?? floor
        if (count <= known) continue
        counts.set(keyId, count)
        if (counts.size < 2 * keep) continue
        const kept = highest(keep)
        counts = new Map(kept.map(({ keyId, count }) => [keyId, count]))
        floor = kept.at(-1)!.count
      }
    },
    floor: () => floor,
    highest,
  }
}
