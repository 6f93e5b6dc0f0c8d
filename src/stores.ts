/**
 * What the service needs of its data servers, in its own words. Adapters, named by technology, are in
 * postgres/, redis/ and memory/; only wiring.ts knows which is in use.
 */
import type { Key, KeyState } from '../schemas/key.ts'
import type { RefusalReason } from '../schemas/refusal.ts'
import type { NewKey } from './rules/new-key.ts'

/** A server is down, too slow or overloaded: the request cannot be decided now. Always a 503, never a 401. */
export class Unavailable extends Error {
  readonly statusCode = 503
}

/** One of our own queues is full, rather than a server behind us. */
export class Overloaded extends Unavailable {}

/** A key's version after a change. */
export interface KeyVersion {
  keyId: string
  version: number
}

/** Resolves once no instance acts on an older version; never rejects. */
export type Publish = (versions: KeyVersion[]) => Promise<void>

// ---- counting -------------------------------------------------------------------------------------------------

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
  /** In the words of the server or the system. Holds no credential. */
  reason: string
}

/** The reply of one script call, shared by all requests that it counted. */
export interface CountReply {
  /** The counting server's clock, Unix milliseconds. */
  readonly nowMs: number
  /** This process's monotonic clock at the answer, milliseconds (performance.now). */
  readonly monoMs: number
  /** Whether the versions come from the shared store. If not, nothing confirms a cached key. */
  readonly shared: boolean
}

/**
 * `count`: this hit's own in the minute, from 1; below 1 if there was no room to count it. `version`: the key's; 0 if none is
 * known, below 0 if unreadable.
 */
export type OnCounted = (count: number, version: number, turn: CountReply) => void

export interface Counter {
  /** Adds one hit to the key's current minute. False when full: nothing was counted and nobody is called. */
  hit(keyId: string, onCounted: OnCounted): boolean
  /**
   * Publishes that keys have changed. Resolves true once every instance will see it, false if that could not be
   * confirmed (and never can be in `memory` mode); never rejects. A version is never lowered.
   */
  raise(versions: KeyVersion[]): Promise<boolean>
  /**
   * shared: one count for all instances; local: the shared store is down or some part of it is, and this instance counts in its
   * place; memory: there is none.
   */
  readonly mode: 'shared' | 'local' | 'memory'
  /** Why the mode is local, one for each server that does not count. */
  readonly outages: readonly Outage[]
  close(): Promise<void>
}

// ---- keys and users ---------------------------------------------------------------------------------------------

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

/** What authentication reads of a key, and the database's clock at that reading (Unix seconds). */
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

/** A key that is to be found by another hash from now on; both in hex. */
export interface Rehash {
  id: string
  from: string
  to: string
}

/** Who changes something, for the audit log. Values from outside are already free of secrets. */
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

/** What `change` and `revoke` change holds on every instance when they resolve. */
export interface KeyStore {
  /** By hex HMAC; absent ones are not in the answer. One statement however many. */
  findByHash(hashes: string[]): Promise<KeyCredential[]>
  /** Makes a key if the caller's own (unless made by the operator) is usable and the user has room for one more. */
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
  /** Idempotent: a revoked key keeps its moment. `userId` null: the operator, for any user. */
  revoke(
    id: string,
    userId: string | null,
    actor: Actor,
  ): Promise<{ ok: true; key: StoredKey } | { ok: false; reason: 'absent' } | CallerUnusable>
  /** Last uses as Unix seconds; an earlier one than stored changes nothing. */
  touch(uses: Map<string, number>): Promise<void>
  /** Keeps keys under another hash, made under the secret of that id. Changes nothing where `from` is not the hash any more. */
  rehash(hashes: Rehash[], hashSecretId: string): Promise<void>
  /** How many usable keys are hashed under each secret, by its id. */
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
  /** Soft-deletes (idempotent). When it resolves, every instance refuses the user's keys; null if absent. */
  remove(id: string, actor: Actor): Promise<User | null>
}

// ---- audit --------------------------------------------------------------------------------------------------------

export type AuditEvent =
  | 'auth.refused'
  | 'key.created'
  | 'key.updated'
  | 'key.revoked'
  | 'user.created'
  | 'user.deleted'

/** One refusal to be kept. Everything from outside is bounded and free of secrets. */
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

/** The one way from a stored key to what crosses the wire. */
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
