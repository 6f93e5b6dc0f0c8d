/**
 * What the service needs from its data servers, in its own terms. The adapters, named by
 * technology, are in postgres/, redis/ and memory/; only wiring/ knows which are in use.
 */
import type { AuditEntry, AuditEvent, AuditReason } from '../schemas/audit.ts'
import type { AdminKey, Key, KeyState } from '../schemas/key.ts'
import type { OperatorRefusalReason, RefusalReason } from '../schemas/refusal.ts'
import type { User } from '../schemas/user.ts'
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

// ---- counting ----------------------------------------------------------------------------------

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

// ---- keys and users ----------------------------------------------------------------------------

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

/** A person with an operator token, or one at the command line. Named in the audit log. */
export type Operator = `operator:${string}` | `cli:${string}`

/** Who changes something, for the audit log. Secrets are already removed. */
export interface Actor {
  requestId: string
  /** The caller's own key; null for an operator. */
  keyId: string | null
  operator: Operator | null
  method: string | null
  path: string | null
  ip: string | null
  userAgent: string | null
}

/** The caller's key was revoked, or otherwise became unusable, before the change was made. */
export type CallerUnusable = { ok: false; reason: 'caller_unusable'; denial: RefusalReason }

/** The expiry asked for is not after the database's clock, `nowS` in Unix seconds. */
export type ExpiresInPast = { ok: false; reason: 'expires_in_past'; nowS: number }

export interface Page {
  limit: number
  startingAfter?: string | undefined
}

export interface KeyPage extends Page {
  status?: KeyState | undefined
  displayPrefix?: string | undefined
}

export type KeyChange = { name?: string; rateLimitRpm?: number; expiresAt?: number | null }

/**
 * When `change` or `revoke` resolves, every instance sees the change. `userId` null: an operator, for any user's key. Each user
 * has their own queue for a connection, and each operator; `lane` names the operator's where no actor does.
 */
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
  get(id: string, userId: string | null, lane?: Operator): Promise<StoredKey | null>
  /** The key with one of these hashes, for an operator. */
  getByHash(hashes: string[], lane: Operator): Promise<StoredKey | null>
  /** Newest first, at most `limit`; null if `startingAfter` is not one of the user's keys. */
  list(userId: string | null, page: KeyPage, lane?: Operator): Promise<StoredKey[] | null>
  change(
    id: string,
    userId: string | null,
    change: KeyChange,
    actor: Actor,
  ): Promise<
    | { ok: true; key: StoredKey }
    | { ok: false; reason: 'absent' | 'not_active' }
    | ExpiresInPast
    | CallerUnusable
  >
  /** Idempotent: `revokedAt` stays as it was. */
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

export type { User } from '../schemas/user.ts'

export type ExternalIdTaken = { ok: false; reason: 'external_id_taken' }

export interface UserStore {
  create(
    user: { id: string; name: string; externalId?: string | null },
    actor: Actor,
  ): Promise<{ ok: true; user: User } | ExternalIdTaken>
  get(id: string, lane?: Operator): Promise<User | null>
  /** Newest first, at most `limit`; null if `startingAfter` is no user. */
  list(page: Page & { externalId?: string | undefined }, lane?: Operator): Promise<User[] | null>
  change(
    id: string,
    change: { name?: string; externalId?: string | null },
    actor: Actor,
  ): Promise<{ ok: true; user: User } | { ok: false; reason: 'absent' } | ExternalIdTaken>
  /** When it resolves, every instance refuses them. How many were not revoked before; null if there is no such user. */
  revokeKeys(id: string, actor: Actor): Promise<number | null>
  /** Soft-deletes (idempotent). When it resolves, every instance refuses the user's keys; null if absent. */
  remove(id: string, actor: Actor): Promise<User | null>
}

// ---- audit -------------------------------------------------------------------------------------

export type { AuditEntry, AuditEvent } from '../schemas/audit.ts'

/** One refusal to record. Everything from outside is bounded and free of secrets. */
export interface RefusalRecord extends Omit<Actor, 'operator'> {
  reason: RefusalReason
  userId: string | null
}

export interface OperatorRefusalRecord extends Omit<Actor, 'operator' | 'keyId'> {
  reason: OperatorRefusalReason
}

/** The place of an entry in the list. */
export type AuditPosition = Pick<AuditEntry, 'id' | 'event'> & { ms: number }

export interface AuditFilter {
  requestId?: string | undefined
  keyId?: string | undefined
  userId?: string | undefined
  reason?: AuditReason | undefined
  event?: AuditEvent | undefined
  /** From this moment on, in Unix seconds. */
  since?: number | undefined
  /** Before this moment, in Unix seconds. */
  until?: number | undefined
  limit: number
  /** Only entries behind this one. */
  after?: AuditPosition | undefined
}

export interface AuditLog {
  /** Resolves once all are committed. */
  recordRefusals(refusals: RefusalRecord[]): Promise<void>
  /** Resolves once it is committed. */
  recordOperatorRefusal(refusal: OperatorRefusalRecord): Promise<void>
  find(requestId: string): Promise<AuditEntry[]>
  /** Newest first. */
  list(filter: AuditFilter, lane?: Operator): Promise<AuditEntry[]>
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

/** The same for operators, who see keys of any user. */
export const adminKeyBody = (key: StoredKey): AdminKey => ({ ...keyBody(key), user_id: key.userId })
