/**
 * What the service needs from its data servers, in its own terms. The adapters, named by
 * technology, are in postgres/, redis/ and memory/; only wiring/ knows which are in use.
 */
import type { AuditEntry } from '../schemas/audit.ts'
import type { AuditEvent, AuditReason, KeyState } from '../schemas/bounds.ts'
import type { CountingMode, OutageCause, PostgresState } from '../schemas/health.ts'
import type { AdminKey, Key } from '../schemas/key.ts'
import type { OperatorRefusalReason, RefusalReason } from '../schemas/refusal.ts'
import type { UsagePoint } from '../schemas/usage.ts'
import type { User } from '../schemas/user.ts'
import type { MintedKey, NewKey } from './rules/new-key.ts'
import type { UsageRange } from './rules/usage-range.ts'

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

/**
 * Resolves once no instance acts on an older version. Rejects with a 503 if that cannot be known in
 * time; the change is stored all the same.
 */
export type Publish = (versions: KeyVersion[]) => Promise<void>

// ---- counting ----------------------------------------------------------------------------------

export interface Outage {
  cause: OutageCause
  /** The server's or the system's message. Contains no credential. */
  reason: string
  /** host:port, if it is one of a cluster. */
  server?: string
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
 * What a shared counter returns in place of a version that it cannot confirm: "<at least>?<token>".
 * A key read from Postgres afterwards may be confirmed with it, if the lease still stands.
 */
export type Lease = string

/**
 * `count`: this hit's number in the minute, from 1; below 1 if there was no room to count it.
 * `version`: the key's latest version, or a lease if the shared counter cannot confirm one. Where
 * nothing is shared: the latest that this process knows of, 0 if none.
 */
export type OnCounted = (count: number, version: number | Lease, reply: CountReply) => void

/** The requests of a key in one minute, as far as the reader knows. */
export interface KeyCount {
  keyId: string
  count: number
}

export interface ScanOptions {
  /**
   * How much of one core of each counting server the scan may use; 0.05 is 5 %, the default. A
   * function is asked after each slice.
   */
  share?: number | (() => number) | undefined
  /** Ends the scan: nothing is visited after it. */
  signal?: AbortSignal | undefined
  /** Asked before each slice: counts up to this are read but not visited. 0 by default. */
  above?: (() => number) | undefined
}

/** `read`: counters read in this slice, also those that are not visited. */
export type VisitCounts = (slice: KeyCount[], read: number) => void | Promise<void>

export interface Scan {
  /** Every counter that existed throughout the scan was visited. */
  complete: boolean
  /** Counters read. */
  scanned: number
  /** Where the counts come from. local: at least one server's are what this instance knows. */
  mode: CountingMode
  /** Why a server was not read; null if all were. */
  fault: Outage | null
}

export interface Counter {
  /**
   * Adds one hit to the key's current minute. False when full: nothing was counted and `onCounted`
   * is not called.
   */
  hit(keyId: string, onCounted: OnCounted): boolean
  /**
   * Publishes that keys have changed. Resolves true once every instance will see it, false if
   * nothing confirms that (in `memory` mode nothing can, unless this process is the only one). Never
   * rejects, and never lowers a version.
   */
  raise(versions: KeyVersion[]): Promise<boolean>
  /**
   * Confirms the version that was read from Postgres after a hit returned this lease. Best effort:
   * otherwise the next hit returns a lease again.
   */
  confirm(keyVersion: KeyVersion, lease: Lease): void
  /**
   * Reads the counters of a minute (rules/window.ts) in slices of at most a few thousand, and waits
   * for each visit before it reads on. The nodes of a cluster are read side by side, and so are
   * visited. A counter may be visited several times: the highest count is right. While a cluster moves
   * slots, a counter may be missed with `above`; without it, the nodes are read again (redis/slot-moves.ts).
   * Rejects only if a visit does. Counters are there until 60 s after their minute.
   */
  scan(minute: number, visit: VisitCounts, options?: ScanOptions): Promise<Scan>
  /**
   * The counts of these keys (at least one) in these minutes, grouped by key. 0 where nothing was
   * counted, and never less than this instance has seen. Never rejects.
   */
  countsOf(keyIds: string[], minutes: number[]): Promise<{ counts: number[]; mode: CountingMode }>
  /**
   * By key, the count in this or the last minute that this instance saw at its own latest hit.
   * Changes with every hit.
   */
  known(minute: number): ReadonlyMap<string, number>
  /**
   * The counting clock, Unix milliseconds. In a cluster, the clock that is furthest behind: a minute
   * that is over by it is over on every node. Never rejects.
   */
  now(): Promise<number>
  /**
   * How many requests this instance has counted in this minute or the one before it, shared or not,
   * since the last call.
   */
  takeHits(minute: number): number
  /**
   * Whether requests of this minute or the one before it may be missing from the counters: a server
   * has lost counts or was down, or this instance has counted alone. A scan then also visits what
   * this instance knows.
   */
  mayLackCounts(minute: number): boolean
  /**
   * Only where counts end with the process: continues from the counts that an earlier one stored,
   * before the first hit. `isCut`: it may have counted more.
   */
  restore?(minute: number, counts: KeyCount[], isCut: boolean): void
  /**
   * shared: one count for all instances. local: the shared store, or part of it, is down, and this
   * instance counts in its place. memory: there is no shared store.
   */
  mode(): CountingMode
  /** Why the mode is local, one for each server that does not count. */
  outages(): readonly Outage[]
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
  /** Its state when it was read, by the database's clock. */
  state: KeyState
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
  nowS: number
}

/** `atS`: Unix seconds. `refreshing`: whether the key is to be read again. */
export interface KeyUse {
  key: Pick<KeyCredential, 'id' | 'userId' | 'rateLimitRpm' | 'expiresAt' | 'version'> & {
    refreshing: boolean
  }
  atS: number
}

/**
 * Ids of keys. `confirmed`: still as the instance has them. `skipped`: their rows are locked, so
 * nothing was written.
 */
interface TouchedKeys extends ReadFrom {
  confirmed: string[]
  skipped: string[]
}

/** The Postgres that keys were read from. */
export interface ReadFrom {
  /** Its clock, in Unix seconds. */
  nowS: number
  /** Names the server and its tables. */
  server: string
}

/**
 * Whether the Postgres that answered accepts writes. `read_only`: it does not, so changes may be made
 * on another server. `standby`: it may also lack changes that were made before.
 */
export type ServerRole = 'primary' | 'read_only' | 'standby'

/** A key that moves to another hash; both in hex. */
export interface Rehash {
  id: string
  from: string
  to: string
}

/**
 * A person with an operator token, one at the command line, or GitHub with a report of leaked keys.
 * Named in the audit log.
 */
export type Operator = `operator:${string}` | `cli:${string}` | 'partner:github'

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

/** The key already has a successor, or too many rotated keys of its owner still work. */
export type NoMoreRotations =
  | { ok: false; reason: 'already_rotated'; successorId: string }
  | { ok: false; reason: 'limit_reached' }

export interface Page {
  limit: number
  startingAfter?: string | undefined
}

interface KeyPage extends Page {
  status?: KeyState | undefined
  displayPrefix?: string | undefined
}

/** A count with what is stored about its key; null where Postgres does not know the key. */
export interface RankedKey {
  id: string
  used: number
  name: string | null
  displayPrefix: string | null
  userId: string | null
  userName: string | null
  rateLimitRpm: number | null
}

/** By requests, or by requests as a share of the limit. */
export type RankBy = 'used' | 'share'

export type KeyChange = { name?: string; rateLimitRpm?: number; expiresAt?: number | null }

/**
 * When `change`, `rotate` or `revoke` resolves, every instance sees the change. `userId` null: an
 * operator, for any user's key. Each user and each operator has their own queue for a connection;
 * `lane` names the operator's in calls without an actor.
 */
export interface KeyStore {
  /** By hex HMAC; unknown ones are left out. One statement for all. */
  findByHash(hashes: string[]): Promise<{ found: KeyCredential[]; role: ServerRole; server: string }>
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
  /**
   * Replaces an active key by a successor with the same owner, name, limit and expiry, which it
   * returns. The old key is revoked, or expires in `graceS` seconds if that is not 0, never later
   * than before. A key is rotated at most once. `onStored`: called once it is committed, before
   * every instance sees it.
   */
  rotate(
    id: string,
    userId: string | null,
    rotation: { successor: MintedKey; graceS: number; onStored?: (key: StoredKey) => void },
    actor: Actor,
  ): Promise<
    | { ok: true; key: StoredKey }
    | { ok: false; reason: 'absent' }
    | { ok: false; reason: 'not_active' }
    | { ok: false; reason: 'owner_deleted' }
    | NoMoreRotations
    | CallerUnusable
  >
  /** Idempotent: `revokedAt` stays as it was. `details`: for the audit entry. */
  revoke(
    id: string,
    userId: string | null,
    actor: Actor,
    details?: Record<string, string>,
  ): Promise<{ ok: true; key: StoredKey } | { ok: false; reason: 'absent' } | CallerUnusable>
  /**
   * Of these counts, the `limit` highest ones by requests and as many by share, in no order, with
   * their keys and owners. One statement.
   */
  rank(counts: KeyCount[], options: { limit: number; lane: Operator }): Promise<RankedKey[]>
  /**
   * Stores last uses. One that is not later than the stored one changes nothing. Waits for a row that
   * somebody has locked; with `skipsLocked` it leaves such rows out. `confirmed`: of the keys to be
   * read again whose use was stored, those that still are what the use says, are not revoked, and whose
   * owner is not deleted. They may have expired. They were read after the call, from a primary.
   */
  touch(uses: KeyUse[], options?: { skipsLocked?: boolean }): Promise<TouchedKeys>
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
  /**
   * Newest first, at most `limit`; null if `startingAfter` is no user. `externalIdHash`: SHA-256 in
   * hex, for an external id that must not be in a statement. It reads every user.
   */
  list(
    page: Page & { externalId?: string | undefined; externalIdHash?: string },
    lane?: Operator,
  ): Promise<User[] | null>
  change(
    id: string,
    change: { name?: string; externalId?: string | null },
    actor: Actor,
  ): Promise<{ ok: true; user: User } | { ok: false; reason: 'absent' } | ExternalIdTaken>
  /**
   * Resolves once every instance refuses the keys, to the number of those that were not revoked before;
   * null if there is no such user.
   */
  revokeKeys(id: string, actor: Actor): Promise<number | null>
  /**
   * Soft-deletes (idempotent). When it resolves, every instance refuses the user's keys; null if
   * absent.
   */
  remove(id: string, actor: Actor): Promise<User | null>
}

// ---- usage -------------------------------------------------------------------------------------

/** What one instance knows of a minute, beyond what it has reported before. */
export interface UsageReport {
  /** Counted by this instance. */
  requests: number
  /** 1: it has begun to count in the minute. -1: its requests are reported now. */
  unreported?: number
  /** The counters may lack requests of any instance. */
  mayLackCounts?: boolean
}

/** How often keys were used. Minutes are numbered as in rules/window.ts. */
export interface UsageStore {
  /**
   * The points of a key, oldest first, and the starts of the steps that are incomplete: something may
   * be missing from a minute since its creation. `live`: the minutes that may not be stored yet, from
   * the counter; `isLocal`: they are what this instance alone has counted. `lane`: the user's id or the
   * operator, in whose queue to wait. The `createdAt` of the result is by the counting clock, if that is
   * behind the clock of the store.
   */
  read(
    key: Pick<StoredKey, 'id' | 'createdAt'>,
    range: UsageRange,
    now: { nowS: number; live: UsagePoint[]; isLocal: boolean },
    lane?: string,
  ): Promise<{ data: UsagePoint[]; incomplete: number[]; createdAt: number }>
  /** claimed: no other instance stores this minute for a while. taken: another one does. */
  claim(minute: number): Promise<'claimed' | 'taken' | 'done'>
  /** Stores counts of a minute, each key once. Lower ones than those stored change nothing. */
  store(minute: number, counts: KeyCount[]): Promise<void>
  /**
   * Ends the claim. `whole`: every counter was read. `done`: none of them will change; before that,
   * nothing is whole while another process counts. Resolves to whether every reported request is stored.
   */
  finish(minute: number, how: { whole: boolean; done: boolean }): Promise<boolean>
  /** Adds what this instance knows of a minute; what is stored is compared with the sum. */
  report(minute: number, report: UsageReport): Promise<void>
  /**
   * What is stored of a minute, for a counter to continue from. `isCut`: a process has counted in it
   * and stored nothing.
   */
  resume(minute: number): Promise<{ counts: KeyCount[]; isCut: boolean }>
  /** Rolls up one hour or day that is over. False if there is none left. */
  rollUp(nowS: number): Promise<boolean>
}

// ---- instances ---------------------------------------------------------------------------------

/** The responses since the start. What happened in between is the difference of two readings. */
export interface Traffic {
  /** When this was counted: seconds by the instance's monotonic clock. */
  monoS: number
  /** By the first digit of the status: answers[4] are the 4xx. */
  answers: number[]
  /** 429s. */
  rateLimited: number
  /** 401s. */
  refused: number
  /**
   * By duration: the first bucket has those of at most latencyBoundsS[0] (src/process/traffic.ts),
   * the last those above all bounds.
   */
  latencies: number[]
}

/** What an instance says of itself. */
export interface InstanceReport {
  id: string
  version: string
  /** Seconds since its start. */
  uptimeS: number
  counting: CountingMode
  /** Whether its last look-up of a key and its last report succeeded. */
  postgres: PostgresState
  traffic: Traffic
}

/** The last report of an instance. Unix seconds by the database's clock, with fractions. */
export interface Instance extends Omit<InstanceReport, 'uptimeS'> {
  startedAt: number
  seenAt: number
  /** Seconds since `seenAt`. */
  silentS: number
}

/** Numbers that show when all instances have given up their old copies (guard/old-copies.ts). */
export interface Fences {
  /** A fence higher than any before. */
  raise(): Promise<number>
  /** Whether every instance that may go on with old copies has reported this fence. */
  passed(fence: number): Promise<boolean>
}

/** Which keys have changed in Postgres. */
export interface KeyChanges extends ReadFrom {
  /** What this reply knows of: send it as `since` with the next report. */
  known: string
  /**
   * Ids of keys, and of users for all of their keys. null: unknown, because nothing was asked, the last
   * report is too long ago, there are more than 10,000, or Postgres is another one or has crashed since.
   */
  changed: string[] | null
}

export interface InstanceStore {
  fences: Fences
  /**
   * `fence`: the instance's current one. Resolves to the latest one. `since`: the `known` of the
   * last reply, or null before the first.
   */
  report(
    report: InstanceReport,
    known: { fence: number; since: string | null },
  ): Promise<{ fence: number; changes: KeyChanges }>
  /** The longest running first. A silent one is removed after one to two hours. */
  list(lane?: Operator): Promise<Instance[]>
  remove(id: string): Promise<void>
}

// ---- audit -------------------------------------------------------------------------------------

export type { AuditEntry } from '../schemas/audit.ts'
export type { AuditEvent } from '../schemas/bounds.ts'

/** One refusal to record. Everything from outside is bounded and free of secrets. */
export interface RefusalRecord extends Omit<Actor, 'operator'> {
  reason: RefusalReason
  userId: string | null
  details: { via?: string | null; key_prefix?: string } | null
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
  /** The limit applies to each event, not to the whole list. */
  limitsEach?: boolean
  /** Only entries that follow this one in the list. */
  after?: AuditPosition | undefined
}

/** The number of refusals for each value, the most frequent first. */
export type RefusalCounts = { value: string | null; refusals: number }[]

export interface AuditLog {
  /** Resolves once all are committed. */
  recordRefusals(refusals: RefusalRecord[]): Promise<void>
  /** Resolves once it is committed. */
  recordOperatorRefusal(refusal: OperatorRefusalRecord): Promise<void>
  find(requestId: string): Promise<AuditEntry[]>
  /** Newest first. */
  list(filter: AuditFilter, lane?: Operator): Promise<AuditEntry[]>
  /**
   * Refusals from `since` on and before `until`, in Unix seconds, by one of the members; IPv6
   * addresses by their /64.
   */
  countRefusals(
    by: 'reason' | 'key_id' | 'ip',
    span: Pick<AuditFilter, 'since' | 'until' | 'limit'>,
  ): Promise<RefusalCounts>
  /** The clock that entries are dated by, Unix milliseconds. */
  now(): Promise<number>
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
