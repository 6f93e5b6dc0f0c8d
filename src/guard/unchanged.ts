/**
 * Renews the cached copies of keys that have not changed, so that they are not looked up again.
 *
 * Once a second, the instance asks Postgres which keys have changed since it last asked (sql/postgres/028).
 * Every other copy is then as good as read when it asked. It is renewed when it is next used, so that a
 * reply costs nothing for the keys that are not.
 *
 * A read may miss a change only if it began before the reply that tells of it. So a copy is left to age
 * if its key has changed since, or if it was read before the first of these replies.
 */
import type { KeyChanges } from '../stores.ts'
import { type CachedKey, renew } from './key-cache.ts'

export interface Unchanged {
  /** A plain field, read for each hit: when the instance last asked, on its monotonic clock. */
  readonly latest: { asOfMs: number }
  /** Does nothing if the key may have changed. */
  renew(key: CachedKey): void
  /** The `known` of the last reply, to send with the next question; null before the first. */
  since(): string | null
  /** `askedAtMs`: before the question was sent. */
  learn(changes: KeyChanges, askedAtMs: number): void
}

/** Ids to remember. Beyond it, every copy has to be read again. */
const changedMax = 10_000

export function createUnchanged(): Unchanged {
  const latest = { asOfMs: 0 }
  let changes: KeyChanges | null = null
  /**
   * When the first reply arrived, by performance.now(), or a later one that could not list the
   * changes. Copies read before it are not renewed.
   */
  let fromMs = Infinity
  /** When the instance learned of the last change of a key or a user. */
  const changedAtMs = new Map<string, number>()
  const hasChangedSince = (id: string, readAtMs: number) => (changedAtMs.get(id) ?? -Infinity) >= readAtMs

  return {
    latest,
    since: () => changes?.known ?? null,
    renew(key) {
      if (changes === null || key.server !== changes.server || key.readAtMs <= fromMs) return
      if (hasChangedSince(key.id, key.readAtMs) || hasChangedSince(key.userId, key.readAtMs)) return
      renew(key, latest.asOfMs, changes)
    },
    learn(learned, askedAtMs) {
      const nowMs = performance.now()
      for (const id of learned.changed ?? []) changedAtMs.set(id, nowMs)
      if (learned.changed === null || changedAtMs.size > changedMax) {
        fromMs = nowMs
        changedAtMs.clear()
      }
      changes = learned
      latest.asOfMs = askedAtMs
    },
  }
}
