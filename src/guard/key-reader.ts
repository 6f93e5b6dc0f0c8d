/**
 * Reads keys from Postgres, in batches, and caches those that are usable. Unknown, revoked and
 * expired keys and those of a deleted owner are never cached, so all of them take the same path:
 * one look-up, one audit entry.
 */
import type { Denied } from '../../plugins/authenticate.ts'
import type { TokenHashes } from '../rules/key-hasher.ts'
import { denialReason } from '../rules/key-state.ts'
import {
  type KeyCredential,
  type KeyStore,
  Overloaded,
  type Rehash,
  type ServerRole,
  Unavailable,
} from '../stores.ts'
import { createBatcher } from './batcher.ts'
import { type CachedKey, expiryOf, type KeyCache } from './key-cache.ts'
import type { Unchanged } from './unchanged.ts'

export interface KeyReaderOptions {
  keys: Pick<KeyStore, 'findByHash'>
  cache: KeyCache
  /** Renews the copies of keys that have not changed. */
  unchanged: Pick<Unchanged, 'latest' | 'renew'>
  /**
   * Called at each look-up of a usable key that is still stored under the previous secret.
   */
  onStaleHash: (rehash: Rehash) => void
  /** Called after each look-up. */
  onPostgres: (isDown: boolean) => void
  onLookupBatch?: ((size: number) => void) | undefined
  /** How long look-ups waited to be sent. */
  onLookupWait?: ((seconds: number) => void) | undefined
  onShed?: (() => void) | undefined
  lookupTimeoutMs: number
}

export interface KeyReader {
  /**
   * Caches the key if it is usable, else removes it. The look-up starts after this call, never
   * before.
   */
  read(cacheName: string, hashes: TokenHashes): Promise<Found | Denied>
  /**
   * Reads the key again in the background, unless its copy has been renewed by then. `onRead` is called
   * if it is still usable.
   */
  refresh(key: CachedKey, onRead: (found: Found) => void): void
  /** Stops background look-ups. Resolves when no look-up is under way. */
  close(): Promise<void>
}

export interface Found {
  ok: true
  key: CachedKey
  /** Of the server that the key was read from. */
  role: ServerRole
}

interface Answer {
  credential: KeyCredential | undefined
  role: ServerRole
  server: string
}

/** While look-ups fail, one is made this often, or an instance without callers would stay "down". */
const probeEveryMs = 2000
const nobodysHash = '0'.repeat(64)

export const lookupBatchMax = 500
const lookupQueueMax = 10_000
/**
 * How long to gather keys that are to be read again, so that they share a statement. Nobody waits
 * for them, and the cached copies are trusted for longer than this. By then, the write of the last use
 * (last-used.ts) has usually renewed the copy.
 */
const refreshAfterMs = 250

export function createKeyReader(options: KeyReaderOptions): KeyReader {
  const { keys, cache, unchanged, onStaleHash, onPostgres } = options

  const lookups = createBatcher<TokenHashes, Answer>({
    name: 'Postgres (lookups)',
    batchMax: lookupBatchMax,
    inFlightMax: 2,
    queueMax: lookupQueueMax,
    timeoutMs: options.lookupTimeoutMs,
    onBatch: (size) => options.onLookupBatch?.(size),
    onWait: options.onLookupWait,
    onShed: () => options.onShed?.(),
    run: (asked) => findAll(keys, asked),
  })

  let probing: NodeJS.Timeout | undefined
  let gathering: NodeJS.Timeout | undefined
  let closed = false

  function probeLater() {
    if (closed) return
    probing ??= setTimeout(() => {
      probing = undefined
      lookUp({ hash: nobodysHash, previousHash: null }).catch(() => {})
    }, probeEveryMs)
    probing.unref()
  }

  async function lookUp(hashes: TokenHashes): Promise<Answer> {
    try {
      const answer = await lookups.add(hashes)
      onPostgres(false)
      return answer
    } catch (error) {
      // Our own queue was full, which says nothing about Postgres.
      if (!(error instanceof Overloaded)) {
        onPostgres(true)
        probeLater()
      }
      throw error
    }
  }

  async function read(cacheName: string, { hash, previousHash }: TokenHashes): Promise<Found | Denied> {
    const readAtMs = performance.now()
    const { credential, role, server } = await lookUp({ hash, previousHash })
    const denied = credential === undefined ? unknown : denialOf(credential)
    if (denied !== null && role !== 'primary' && !isFinal(denied)) throw new Unavailable(noWrites)
    if (credential === undefined || denied !== null) {
      cache.delete(cacheName)
      return denied ?? unknown
    }
    const readFrom = role === 'primary' ? server : ''
    const key = cached(credential, { cacheName, hash, previousHash, readAtMs, server: readFrom })
    cache.set(key)
    if (key.hasStaleHash) onStaleHash({ id: key.id, from: credential.hash, to: hash })
    return { ok: true, key, role }
  }

  const toRefresh: { key: CachedKey; askedAtMs: number; onRead: (found: Found) => void }[] = []

  function refreshAll() {
    for (const { key, askedAtMs, onRead } of toRefresh.splice(0)) {
      unchanged.renew(key)
      if (key.readAtMs > askedAtMs) {
        key.refreshing = false
        onRead({ ok: true, key, role: 'primary' })
        continue
      }
      read(key.cacheName, key)
        .then(
          (found) => found.ok && onRead(found),
          () => {},
        )
        // The copy stays in the cache if it has been renewed meanwhile.
        .finally(() => {
          key.refreshing = false
        })
    }
  }

  return {
    read,
    refresh(key, onRead) {
      if (key.refreshing || closed) return
      key.refreshing = true
      if (toRefresh.push({ key, askedAtMs: performance.now(), onRead }) === 1)
        gathering = setTimeout(refreshAll, refreshAfterMs).unref()
    },
    close() {
      closed = true
      clearTimeout(probing)
      clearTimeout(gathering)
      return lookups.drained()
    },
  }
}

const unknown: Denied = { ok: false, reason: 'unknown_key' }

const noWrites = 'Postgres takes no writes: the key may have been created or changed at another one'

/** A key may be created, or its expiry moved, at another server. A revocation stays. */
const isFinal = ({ reason }: Denied) => reason === 'revoked' || reason === 'owner_deleted'

function denialOf(credential: KeyCredential): Denied | null {
  const reason = denialReason(credential, credential.nowS)
  return reason && { ok: false, reason, keyId: credential.id, userId: credential.userId }
}

/** One query for all. If both hashes are found, the one under the current secret wins. */
async function findAll(keys: Pick<KeyStore, 'findByHash'>, asked: TokenHashes[]): Promise<Answer[]> {
  const hashes = new Set<string>()
  for (const { hash, previousHash } of asked) {
    hashes.add(hash)
    if (previousHash !== null) hashes.add(previousHash)
  }
  const { found, role, server } = await keys.findByHash([...hashes])
  const byHash = new Map(found.map((key) => [key.hash, key]))
  return asked.map(({ hash, previousHash }) => ({
    credential: byHash.get(hash) ?? byHash.get(previousHash ?? hash),
    role,
    server,
  }))
}

type Reading = Pick<CachedKey, 'cacheName' | 'hash' | 'previousHash' | 'readAtMs' | 'server'>

function cached(credential: KeyCredential, reading: Reading): CachedKey {
  const { cacheName, hash, previousHash, readAtMs, server } = reading
  const { id, userId, rateLimitRpm, expiresAt, version, nowS } = credential
  return {
    id,
    userId,
    rateLimitRpm,
    expiresAt,
    expiresAtMonoMs: expiryOf(expiresAt, readAtMs, nowS),
    hasStaleHash: credential.hash !== hash,
    version,
    cacheName,
    hash,
    previousHash,
    readAtMs,
    server,
    touchedS: 0,
    refreshing: false,
    ownReadOf: null,
  }
}
