/**
 * Usable keys by their token, bounded. Holds no token: entries are found by a SHA-256 under a salt of this process,
 * which costs a fifth of the HMAC that is stored (a memory dump gives neither the token nor the stored hash).
 *
 * Least-recently-used in two generations: a hit in the old one moves to the young one; when the young one is full it
 * becomes the old one and what the old one still held is forgotten. One map look-up for a hot key, no list to keep.
 */
import { hash, randomBytes } from 'node:crypto'
import type { Caller } from '../../plugins/authenticate.ts'
import type { TokenHashes } from '../rules/key-hasher.ts'

/** A key as read from Postgres. decide.ts says when it is trusted. */
export interface CachedKey extends Caller, TokenHashes {
  /** Its name in the cache: `nameOf` its token. */
  readonly cacheName: string
  readonly version: number
  /** When the reading began, on this process's monotonic clock, milliseconds. */
  readonly readAtMs: number
  /** The key's expiry on the same clock; Infinity if it has none. */
  readonly expiresAtMonoMs: number
  /** Unix second of the use last reported to `onUse`. */
  touchedS: number
  /** Whether a reading in the background is under way. */
  refreshing: boolean
}

export interface KeyCache {
  /** The name under which a token's key is kept. */
  nameOf(token: string): string
  get(name: string): CachedKey | undefined
  /** Keeps the key unless what is there was read later. */
  set(key: CachedKey): void
  delete(name: string): void
  readonly size: number
}

export function createKeyCache(entriesMax: number): KeyCache {
  const salt = randomBytes(32).toString('latin1')
  const generationMax = Math.max(1, Math.floor(entriesMax / 2))
  let young = new Map<string, CachedKey>()
  let old = new Map<string, CachedKey>()

  function keep(name: string, key: CachedKey) {
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
        keep(name, older)
      }
      return older
    },
    set(key) {
      const name = key.cacheName
      const present = young.get(name) ?? old.get(name)
      if (present !== undefined && present.readAtMs > key.readAtMs) return
      old.delete(name)
      keep(name, key)
    },
    delete(name) {
      young.delete(name)
      old.delete(name)
    },
    get size() {
      return young.size + old.size
    },
  }
}
