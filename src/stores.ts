/**
 * What the service needs from its data servers, in its own terms. The adapters, named by
 * technology, are in postgres/, redis/ and memory/; only wiring/ knows which are in use.
 */
import type { Key, KeyState } from '../schemas/key.ts'
import type { RefusalReason } from '../schemas/refusal.ts'
import type { NewKey } from './rules/new-key.ts'

/**
 * A server is down, too slow or overloaded: the request cannot be decided now. Always a 503, never
 * a 401.
 */
export class Unavailable extends Error {
  readonly statusCode = 503
}

/** One of our own queues is full; the servers may be fine. */
export class Overloaded extends Unavailable {}

/** A key's version after a change. */
export interface KeyVersion {
  keyId: string
  version: number
}

/** Resolves once no instance acts on an older version; never rejects. */
export type Publish = (versions: KeyVersion[]) => Promise<void>

// ---- counting
// -------------------------------------------------------------------------------------------------

/** Why a shared counter does not count. A label of a metric, so there are only these. */
export const outageCauses = [
  'wrong_password',
  'no_permission',
  'certificate',
  'tls',
  'unknown_host',
  'refused',
  'unreachable',
  'disconnected',
  'timeout',
  'loading',
  'read_only',
  'out_of_memory',
  'cluster_down',
  'other',
] as const

export interface Outage {
  cause: (typeof outageCauses)[number]
  /** The server's or the system's message. Contains no credential. */
  reason: string
}

/** The reply of one script call, shared by all requests that it counted. */
export interface CountReply {
  /** The counting server's clock, Unix milliseconds. */
  readonly nowMs: number
  /** This process's monotonic clock at the reply, milliseconds (performance.now). */
  readonly monoMs: number
  /** Whether the versions come from the shared store. If not, nothing confirms cached keys. */
  readonly shared: boolean
}

/**
 * `count`: this hit's number in the minute, from 1; below 1 if there was no room to count it.
 * `version`: the key's; 0 if none is known, below 0 if it is unreadable.
 */
export type OnCounted = (count: number, version: number, reply: CountReply) => void

export interface Counter {
  /**
   * Adds one hit to the key's current minute. False when full: nothing was counted and nobody is
   * called.
   */
  hit(keyId: string, onCounted: OnCounted): boolean
  /**
   * Publishes that keys have changed. Resolves true once every instance will see it, false if
   * nothing confirms that (in `memory` mode nothing can). Never rejects, and never lowers a
   * version.
   */
  raise(versions: KeyVersion[]): Promise<boolean>
  /**
   * shared: one count for all instances. local: the shared store, or part of it, is down, and this
   * instance counts in its place. memory: there is no shared store.
   */
  readonly mode: 'shared' | 'local' | 'memory'
  /** Why the mode is local, one for each server that does not count. */
  readonly outages: readonly Outage[]
  close(): Promise<void>
}

// ---- keys and users
// ---------------------------------------------------------------------------------------------

/** A stored key, times in Unix seconds. Its secret and the secret's hash are not part of it. */
export interface StoredKey {
  id: string
  userId: string
  name: string
  displayPrefix: string
  rateLimitRpm: number
  version: number
  createdAt: number
  expiresAt: number | null
  revokedAt: number | null
  lastUsedAt: number | null
}

/**
 * What authentication reads about a key. `nowS` is the database's clock at that moment, Unix
 * seconds.
 */
export interface KeyCredential {
  hash: string
  id: string
  userId: string
  rateLimitRpm: number
  version: number
  expiresAt: number | null
  revokedAt: number | null
  ownerDeleted: boolean
  /** Of the HASH_SECRET that `hash` was made under. */
  hashSecretId: string
  nowS: number
}

/** A key that moves to another hash; both in hex. */
export interface Rehash {
  id: string
  from: string
  to: string
}

/** Who changes something, for the audit log. Secrets are already removed. */
export interface Actor {
  requestId: string
  keyId: string | null
  method: string | null
  path: string | null
  ip: string | null
  userAgent: string | null
}

/** The caller's key was revoked, or otherwise became unusable, before the change was made. */
export type CallerUnusable = { ok: false; reason: 'caller_unusable'; denial: RefusalReason }

/** The expiry asked for is not after the database's clock, `nowS` in Unix seconds. */
export type ExpiresInPast = { ok: false; reason: 'expires_in_past'; nowS: number }

export type KeyChange = { name?: string; rateLimitRpm?: number; expiresAt?: number | null }

/** When `change` or `revoke` resolves, every instance sees the change. */
export interface KeyStore {
  /** By hex HMAC; unknown ones are left out. One statement for all. */
  findByHash(hashes: string[]): Promise<KeyCredential[]>
  /**
   * Creates a key if the user has room for one more and the caller's own key is usable (an operator
   * needs none).
   */
  create(
    key: NewKey,
    actor: Actor,
  ): Promise<
    | { ok: true; key: StoredKey }
    | { ok: false; reason: 'limit_reached' | 'no_such_user' }
    | ExpiresInPast
    | CallerUnusable
  >
  get(id: string, userId: string): Promise<StoredKey | null>
  /** Newest first, at most `limit`; null if `startingAfter` is not one of the user's keys. */
  list(
    userId: string,
    page: { limit: number; startingAfter?: string | undefined; status?: KeyState | undefined },
  ): Promise<StoredKey[] | null>
  change(
    id: string,
    userId: string,
    change: KeyChange,
    actor: Actor,
  ): Promise<
    | { ok: true; key: StoredKey }
    | { ok: false; reason: 'absent' | 'not_active' }
    | ExpiresInPast
    | CallerUnusable
  >
  /** Idempotent: `revokedAt` stays as it was. `userId` null: an operator, for any user's key. */
  revoke(
    id: string,
    userId: string | null,
    actor: Actor,
  ): Promise<{ ok: true; key: StoredKey } | { ok: false; reason: 'absent' } | CallerUnusable>
  /** Stores last uses, Unix seconds. One that is earlier than the stored one changes nothing. */
  touch(uses: Map<string, number>): Promise<void>
  /**
   * Stores keys under another hash, made with the secret of that id. Skips a key whose hash is no
   * longer `from`.
   */
  rehash(hashes: Rehash[], hashSecretId: string): Promise<void>
  /** How many usable keys are stored under each secret, by its id. */
  countBySecret(): Promise<Map<string, number>>
}

export interface User {
  id: string
  name: string
  created_at: number
  deleted_at: number | null
}

export interface UserStore {
  create(user: { id: string; name: string }, actor: Actor): Promise<User>
  list(): Promise<User[]>
  /**
   * Soft-deletes (idempotent). When it resolves, every instance refuses the user's keys; null if
   * absent.
   */
  remove(id: string, actor: Actor): Promise<User | null>
}

// ---- audit
// --------------------------------------------------------------------------------------------------------

export type AuditEvent =
  | 'auth.refused'
  | 'key.created'
  | 'key.updated'
  | 'key.revoked'
  | 'user.created'
  | 'user.deleted'

/** One refusal to record. Everything from outside is bounded and free of secrets. */
export interface RefusalRecord extends Actor {
  reason: RefusalReason
  userId: string | null
}

export interface AuditEntry {
  id: string
  /** ISO 8601 with milliseconds, UTC. */
  occurred_at: string
  request_id: string
  event: AuditEvent
  reason: RefusalReason | null
  key_id: string | null
  user_id: string | null
  actor_key_id: string | null
  method: string | null
  path: string | null
  ip: string | null
  user_agent: string | null
  details: Record<string, unknown> | null
}

export interface AuditLog {
  /** Resolves once all are committed. */
  recordRefusals(refusals: RefusalRecord[]): Promise<void>
  find(requestId: string): Promise<AuditEntry[]>
  /** Newest first. `since` is a moment in Unix seconds. */
  list(filter: {
    reason?: RefusalReason | undefined
    keyId?: string | undefined
    since?: number | undefined
    limit: number
  }): Promise<AuditEntry[]>
}

/** The only conversion of a stored key to what crosses the wire. */
export const keyBody = (key: StoredKey): Key => ({
  id: key.id,
  name: key.name,
  key_prefix: key.displayPrefix,
  rate_limit_rpm: key.rateLimitRpm,
  last_used_at: key.lastUsedAt,
  expires_at: key.expiresAt,
  created_at: key.createdAt,
  revoked_at: key.revokedAt,
})
