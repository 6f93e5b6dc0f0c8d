/**
 * The hits of one event-loop turn: what is sent to Redis as one call, and which request gets which
 * number from the reply.
 */
import type { CountReply, Lease, OnCounted } from '../stores.ts'

export interface Hits {
  readonly keyIds: string[]
  /** The number of hits for each key, at its index in `keyIds`. */
  readonly sums: number[]
  /** The number of waiting hits, over all keys. */
  size(): number
  add(keyId: string, onCounted: OnCounted): void
  /** Hands each waiting hit its own number from its key's range. */
  answer(counts: ArrayLike<number>, versions: ArrayLike<number | Lease>, reply: CountReply): void
}

export function createHits(): Hits {
  const keyIds: string[] = []
  const sums: number[] = []
  const indexes = new Map<string, number>()
  const waiting: OnCounted[] = []
  const indexOf: number[] = []

  return {
    keyIds,
    sums,
    // Not a getter: V8 gives every object from a literal with an accessor its own hidden class,
    // which lives in old space and keeps everything the batch refers to alive until a full
    // collection (30 µs per request instead of 18).
    size: () => waiting.length,
    add(keyId, onCounted) {
      let index = indexes.get(keyId)
      if (index === undefined) {
        index = keyIds.length
        indexes.set(keyId, index)
        keyIds.push(keyId)
        sums.push(0)
      }
      sums[index]!++
      waiting.push(onCounted)
      indexOf.push(index)
    },
    answer(counts, versions, reply) {
      const next = sums.map((sum, index) => counts[index]! - sum)
      for (let i = 0; i < waiting.length; i++) {
        const index = indexOf[i]!
        next[index]!++
        try {
          waiting[i]!(next[index]!, versions[index]!, reply)
        } catch (error) {
          // Of the code of one request. The others still need their answers.
          void Promise.reject(error)
        }
      }
    },
  }
}
