/** The highest counts of a minute, out of any number of counters, in bounded memory. */
import type { KeyCount } from '../stores.ts'

export interface TopCounts {
  /** Of two counts of one key, the higher one stays: counts only rise. */
  add(slice: readonly KeyCount[]): void
  /** Counts up to this need not be added. */
  floor(): number
  /** Highest first, at most `max`. */
  highest(max: number): KeyCount[]
  /**
   * Those that are new, or have passed a power of two since they were last taken: at the latest
   * when their count has doubled. At most `max`.
   */
  takeRisen(max: number): KeyCount[]
  /** The counts of these keys, of those that are remembered. */
  of(keyIds: readonly string[]): KeyCount[]
}

/** Up to this many are found in one pass, in a tenth of the time that sorting takes. */
const fewMax = 200

function fewHighest(counts: ReadonlyMap<string, number>, max: number): KeyCount[] {
  const found: KeyCount[] = []
  for (const [keyId, count] of counts) {
    if (found.length === max && count <= found.at(-1)!.count) continue
    const place = found.findLastIndex((one) => one.count >= count) + 1
    found.splice(place, 0, { keyId, count })
    if (found.length > max) found.pop()
  }
  return found
}

const bitsOf = (count: number) => 32 - Math.clz32(count)

/** Remembers at least the `keep` highest counts, at most twice as many. */
export function createTopCounts(keep: number): TopCounts {
  let counts = new Map<string, number>()
  /** Keys that are not among the highest any more have at most this count. */
  let floor = 0
  const risen = new Set<string>()

  function highest(max: number): KeyCount[] {
    if (max <= fewMax) return fewHighest(counts, max)
    // Sorting numbers alone takes a tenth of the time.
    const least = counts.size <= max ? 0 : Float64Array.from(counts.values()).sort().at(-max)!
    const found: KeyCount[] = []
    for (const [keyId, count] of counts) if (count >= least) found.push({ keyId, count })
    return found.sort((a, b) => b.count - a.count).slice(0, max)
  }

  const countsOf = (keyIds: readonly string[]) =>
    keyIds.flatMap((keyId) => {
      const count = counts.get(keyId)
      return count === undefined ? [] : { keyId, count }
    })

  return {
    add(slice) {
      for (const { keyId, count } of slice) {
        const known = counts.get(keyId) ?? floor
        if (count <= known) continue
        if (!counts.has(keyId) || bitsOf(count) > bitsOf(known)) risen.add(keyId)
        counts.set(keyId, count)
        if (counts.size < 2 * keep) continue
        const kept = highest(keep)
        counts = new Map(kept.map(({ keyId, count }) => [keyId, count]))
        floor = kept.at(-1)!.count
        for (const one of risen) if (!counts.has(one)) risen.delete(one)
      }
    },
    floor: () => floor,
    highest,
    takeRisen(max) {
      const taken: string[] = []
      for (const keyId of risen) {
        if (taken.length === max) break
        taken.push(keyId)
        risen.delete(keyId)
      }
      return countsOf(taken)
    },
    of: countsOf,
  }
}
