/**
 * Decides whose token it is and counts it: the functions behind the authenticate and rate-limit plugins.
 *
 * A key read from Postgres is kept, and believed only as long as the counter vouches for it: each count brings the
 * key's present version, so a change made anywhere is seen by the very next request, at no extra round trip. Whatever
 * is not vouched for is read again, in a batch, before the request goes on. Only usable keys are kept, so an unknown, a
 * revoked, an expired and an ownerless token all take the same way: one reading, one audit entry.
 */
import type { Caller, Denied, Verdict } from '../../plugins/authenticate.ts'
import type { Counted } from '../../plugins/rate-limit.ts'
import { denialReason } from '../rules/key-state.ts'
import { hashSecretId, hashToken } from '../rules/token.ts'
import {
  type Counter,
  type CountReply,
  type KeyCredential,
  type KeyStore,
  Overloaded,
  type Rehash,
  Unavailable,
} from '../stores.ts'
import { createBatcher } from './batcher.ts'
import type { CachedKey, KeyCache } from './key-cache.ts'

export interface GateOptions {
  keys: Pick<KeyStore, 'findByHash'>
  counter: Counter
  cache: KeyCache
  hashSecret: string
  /** Its keys are found too, and handed to `onStaleHash`. */
  hashSecretPrevious: string | null
  /** How long a vouched copy is believed, milliseconds. */
  cacheTtlMs: number
  /** How long an unvouched one is; 0: never. */
  degradedCacheTtlMs: number
  /** Notes a use at the given Unix second; called at most once a second and key. */
  onUse: (keyId: string, atS: number) => void
  /** While there is a previous secret: a usable key not yet kept under `hashSecret`; told at each reading until it is. */
  onStaleHash: (rehash: Rehash) => void
  onLookupBatch?: (size: number) => void
  onShed?: (queue: 'lookups' | 'counter') => void
}

/** While Postgres is away a vouched copy goes on for this long. */
const postgresAwayMs = 60_000
/** And waits this long for a newer one: what the request then asks of Postgres itself has its own time yet to come. */
const goOnAfterMs = 300
const lookupTimeoutMs = 1000
const lookupBatchMax = 500
const lookupQueueMax = 10_000

/** What a token is looked for by. */
type Hashes = Pick<CachedKey, 'hash' | 'previousHash'>

const unknown: Denied = { ok: false, reason: 'unknown_key' }

export interface Gate {
  verify(token: string, done: (error: Error | null, verdict?: Verdict) => void): void
  hit(caller: Caller, done: (error: Error | null, counted?: Counted | Denied) => void): void
  /** Whether the last look-up failed. */
  readonly postgresAway: boolean
  /** Believes no copy read before now: the counter lost sight of changes made meanwhile. */
  invalidateBefore(): void
  drained(): Promise<void>
}

export function createGate(options: GateOptions): Gate {
  const { keys, counter, cache, hashSecret, hashSecretPrevious, cacheTtlMs, degradedCacheTtlMs } = options
  const { onUse, onStaleHash, onLookupBatch, onShed } = options
  const currentSecretId = hashSecretId(hashSecret)
  let postgresAway = false
  let believableFromMs = 0

  const lookups = createBatcher<Hashes, KeyCredential | undefined>({
    batchMax: lookupBatchMax,
    inFlightMax: 2,
    queueMax: lookupQueueMax,
    timeoutMs: lookupTimeoutMs,
    onBatch: (size) => onLookupBatch?.(size),
    onShed: () => onShed?.('lookups'),
    async run(asked) {
      const hashes = new Set<string>()
      for (const { hash, previousHash } of asked) {
        hashes.add(hash)
        if (previousHash !== null) hashes.add(previousHash)
      }
      const found = new Map((await keys.findByHash([...hashes])).map((key) => [key.hash, key]))
      return asked.map(
        ({ hash, previousHash }) =>
          found.get(hash) ?? (previousHash === null ? undefined : found.get(previousHash)),
      )
    },
  })

  /** Reads a key and keeps it if usable, else forgets it. The reading begins after this call, never before. */
  async function read(cacheName: string, hashes: Hashes): Promise<{ ok: true; key: CachedKey } | Denied> {
    const { hash, previousHash } = hashes
    const readAtMs = performance.now()
    let credential: KeyCredential | undefined
    try {
      credential = await lookups.add(hashes)
      postgresAway = false
    } catch (error) {
      if (!(error instanceof Overloaded)) postgresAway = true
      throw error
    }
    const reason = credential === undefined ? 'unknown_key' : denialReason(credential, credential.nowS)
    if (credential === undefined || reason !== null) {
      cache.delete(cacheName)
      if (credential === undefined || reason === null) return unknown
      return { ok: false, reason, keyId: credential.id, userId: credential.userId }
    }
    const key: CachedKey = {
      id: credential.id,
      userId: credential.userId,
      rateLimitRpm: credential.rateLimitRpm,
      expiresAt: credential.expiresAt,
      version: credential.version,
      cacheName,
      hash,
      previousHash,
      readAtMs,
      touchedS: 0,
      refreshing: false,
    }
    cache.set(key)
    if (hashSecretPrevious !== null && credential.hashSecretId !== currentSecretId)
      onStaleHash({ id: key.id, from: credential.hash, to: hash })
    return { ok: true, key }
  }

  /** Reads ahead of need, so that a busy key never waits for Postgres. */
  function refresh(key: CachedKey) {
    if (key.refreshing) return
    key.refreshing = true
    read(key.cacheName, key).catch(() => {
      key.refreshing = false
    })
  }

  function admit(key: CachedKey, number: number, nowMs: number): Counted {
    const nowS = Math.floor(nowMs / 1000)
    if (key.touchedS !== nowS) {
      key.touchedS = nowS
      onUse(key.id, nowS)
    }
    return { ok: true, caller: key, count: number, nowMs }
  }

  /** Neither changed nor expired, as far as the counter can say. */
  const isCurrent = (key: CachedKey, version: number, turn: CountReply) =>
    key.readAtMs >= believableFromMs &&
    version >= 0 &&
    version <= key.version &&
    (key.expiresAt === null || turn.nowMs < key.expiresAt * 1000)

  return {
    verify(token, done) {
      const cacheName = cache.nameOf(token)
      const cached = cache.get(cacheName)
      if (cached !== undefined) return done(null, { ok: true, caller: cached })
      // Both in any case: how long it takes must not tell under which one a key is known.
      const hash = hashToken(token, hashSecret).toString('hex')
      const previousHash =
        hashSecretPrevious === null ? null : hashToken(token, hashSecretPrevious).toString('hex')
      read(cacheName, { hash, previousHash }).then(
        (found) => done(null, found.ok ? { ok: true, caller: found.key } : found),
        done,
      )
    },

    hit(caller, done) {
      const key = caller as CachedKey
      const taken = counter.hit(key.id, (number, version, turn) => {
        const current = isCurrent(key, version, turn)
        const ageMs = turn.monoMs - key.readAtMs
        const ttlMs = turn.shared ? cacheTtlMs : degradedCacheTtlMs
        if (current && ageMs < ttlMs) {
          if (ageMs > ttlMs / 2 && turn.shared) refresh(key)
          return done(null, admit(key, number, turn.nowMs))
        }
        const mayGoOn = current && turn.shared && ageMs < postgresAwayMs
        if (mayGoOn && postgresAway) {
          refresh(key)
          return done(null, admit(key, number, turn.nowMs))
        }
        let answered = false
        const answer = (error: Error | null, counted?: Counted | Denied) => {
          if (answered) return
          answered = true
          clearTimeout(timer)
          done(error, counted)
        }
        const goOn = () => answer(null, admit(key, number, turn.nowMs))
        const timer = mayGoOn ? setTimeout(goOn, goOnAfterMs) : undefined
        read(key.cacheName, key).then(
          (found) => {
            if (!found.ok) return answer(null, found)
            // A standby, or a primary that is none any more: what it lacks may be the revocation.
            if (found.key.version < version) return answer(new Unavailable('Postgres is behind the counter'))
            answer(null, admit(found.key, number, turn.nowMs))
          },
          (error) => (mayGoOn ? goOn() : answer(error)),
        )
      })
      if (!taken) {
        onShed?.('counter')
        done(new Unavailable('too many requests are waiting to be counted'))
      }
    },

    get postgresAway() {
      return postgresAway
    },
    invalidateBefore() {
      believableFromMs = performance.now()
    },
    drained: () => lookups.drained(),
  }
}
