/**
 * A bounded cache of usable keys by token. It stores no token: entries are found by a SHA-256 with
 * a salt of this process, which costs a fifth of the HMAC stored in Postgres.
 *
 * Evicts the least recently used keys, in two generations. A hit in the old generation moves the
 * key to the young one. When the young one is full, it becomes the old one, and the rest of the old
 * one is dropped. A hot key costs one map look-up, and there is no list to maintain.
 */
import { hash, randomBytes } from 'node:crypto'
import type { Caller } from '../../plugins/authenticate.ts'
import { atLeastMs } from '../rules/clock-rates.ts'
import type { TokenHashes } from '../rules/key-hasher.ts'
import type { ReadFrom } from '../stores.ts'

/** A key as read from Postgres. decide.ts says when it is trusted. */
export interface CachedKey extends Caller, TokenHashes {
  /** Its name in the cache: `nameOf(token)`. */
  readonly cacheName: string
  readonly version: number
  /**
   * When the latest read began that found the key as it is here, on this process's monotonic clock, in
   * milliseconds.
   */
  readAtMs: number
  /** The Postgres of that read, if it accepted writes; else empty. */
  server: string
  /** The key's expiry on the same clock; Infinity if it has none. */
  expiresAtMonoMs: number
  /** Whether it is stored under the previous secret, as of the look-up. */
  readonly hasStaleHash: boolean
  /** Unix second of the use last reported to `onUse`. */
  touchedS: number
  /** Whether the key is being read again in the background. */
  refreshing: boolean
  /**
   * The copy in the cache, if this one belongs to the request for which the key was read from a primary.
   * Null in the cache.
   */
  readonly ownReadOf: CachedKey | null
}

/**
 * May be early, never late: the database read its clock after the read began, and the key is read again
 * at the deadline.
 */
export const expiryOf = (expiresAt: number | null, readAtMs: number, nowS: number) =>
  expiresAt === null ? Infinity : readAtMs + atLeastMs((expiresAt - nowS) * 1000)

/** A later read, which began at `readAtMs`, has found the key as it is here. */
export function renew(key: CachedKey, readAtMs: number, { nowS, server }: ReadFrom) {
  // Only a look-up finds out whether it has been stored under the current one.
  if (key.hasStaleHash || readAtMs <= key.readAtMs) return
  key.readAtMs = readAtMs
  key.server = server
  key.expiresAtMonoMs = expiryOf(key.expiresAt, readAtMs, nowS)
}

export interface KeyCache {
  /** The name under which a token's key is stored. */
  nameOf(token: string): string
  get(name: string): CachedKey | undefined
  /** Stores the key, unless the stored one was read later. */
  set(key: CachedKey): void
  delete(name: string): void
  size(): number
}

export function createKeyCache(entriesMax: number): KeyCache {
  // Short enough for SHA-256 to take salt and token as one block, and ASCII, which is copied faster.
  const salt = randomBytes(10).toString('base64url')
  const generationMax = Math.max(1, Math.floor(entriesMax / 2))
  let young = new Map<string, CachedKey>()
  let old = new Map<string, CachedKey>()

  function store(name: string, key: CachedKey) {
    if (young.size >= generationMax && !young.has(name)) {
      old = young
      young = new Map()
    }
    young.set(name, key)
  }

  return {
    nameOf: (token) => hash('sha256', salt + token, 'binary'),
    get(name) {
      const key = young.get(name)
      if (key !== undefined) return key
      const older = old.get(name)
      if (older !== undefined) {
        old.delete(name)
        store(name, older)
      }
      return older
    },
    set(key) {
      const name = key.cacheName
      const present = young.get(name) ?? old.get(name)
      if (present !== undefined && present.readAtMs > key.readAtMs) return
      old.delete(name)
      store(name, key)
    },
    delete(name) {
      young.delete(name)
      old.delete(name)
    },
    size: () => young.size + old.size,
  }
}
