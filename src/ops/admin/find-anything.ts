/**
 * Identifies what a customer has sent: a key, its beginning, an id or an external id. A whole key is
 * hashed at once. It is neither stored nor logged, and reaches Postgres as its hash only.
 */
import { createHash } from 'node:crypto'
import type { AdminKey } from '../../../schemas/key.ts'
import type { Lookup } from '../../../schemas/lookup.ts'
import { isRequestId } from '../../rules/id.ts'
import type { KeyHasher } from '../../rules/key-hasher.ts'
import type { TokenFormat } from '../../rules/token.ts'
import type {
  AuditFilter,
  AuditLog,
  Counter,
  KeyStore,
  Operator,
  StoredKey,
  User,
  UserStore,
} from '../../stores.ts'
import { countersOfKey } from './counters-body.ts'

export interface FindOptions {
  keys: KeyStore
  users: UserStore
  audit: AuditLog
  /** null: the counters are in another process. */
  counter: Pick<Counter, 'now' | 'countsOf' | 'mayLackCounts'> | null
  hasher: KeyHasher
  tokenFormat: TokenFormat
}

/** Audit entries shown. GET /admin/audit has the others. */
const entriesMax = 10
/** Keys shown if several begin alike. */
const keysMax = 10

/** The only id among these; null if there is none or more than one. */
const onlyOne = (ids: (string | null)[]) => (new Set(ids).size === 1 ? ids[0]! : null)

interface LookupCaller {
  lane: Operator
  toBody: (key: StoredKey) => AdminKey
}

/** A shorter run gives little of a key away. With `%`, a key may be percent-encoded. */
const mayRevealKey = /[0-9A-Za-z]{16}|%/
/** What is left of a key whose start is lost or mistyped. Ids of ours have no capital letters. */
const isLikeSecret = (text: string) =>
  (text.match(/[0-9A-Za-z]{30,}/g) ?? []).some((run) => /[A-Z]/.test(run) && /[a-z]/.test(run))

/** The first key in a text. A line break of a terminal or an e-mail may be within it. */
export const keyIn = (text: string, { firstIn }: TokenFormat) =>
  firstIn(text) ?? firstIn(text.replaceAll(/\s/g, ''))

/** Outer white space is ignored, except in an external id that has it. Null if there is no such thing. */
type FindAnything = (query: string, caller: LookupCaller) => Promise<Lookup | null>

export function createLookup(options: FindOptions): FindAnything {
  const { keys, users, audit, counter, hasher, tokenFormat } = options
  const prefixLength = tokenFormat.displayPrefixLength

  async function find(given: string, caller: LookupCaller): Promise<Lookup | null> {
    const { lane } = caller
    const query = given.trim()
    // A header, quotes or a whole command may be pasted with a key. No id contains one.
    const token = keyIn(query, tokenFormat)
    if (token !== null) {
      const { hash, previousHash } = hasher.hashesOf(token)
      const hashes = previousHash === null ? [hash] : [hash, previousHash]
      return aboutKey(await keys.getByHash(hashes, lane), caller)
    }
    if (query.length === prefixLength) {
      const found = await keys.list(null, { limit: keysMax, displayPrefix: query }, lane)
      if (found!.length > 1) return { type: 'keys', keys: found!.map(caller.toBody) }
      if (found!.length === 1) return aboutKey(found![0]!, caller)
    }
    const byExternalId = async () => aboutUser(await userWithExternalId(given, query, lane), caller)
    if (query.startsWith('req_')) return (await aboutRequest(query, caller)) ?? byExternalId()
    return (await byId(query, caller)) ?? (await byExternalId()) ?? aboutRequest(query, caller)
  }

  async function userWithExternalId(given: string, trimmed: string, lane: Operator): Promise<User | null> {
    for (const text of new Set([given, trimmed])) {
      const [user] = (await users.list({ limit: 1, ...externalIdFilter(text) }, lane))!
      if (user !== undefined) return user
    }
    return null
  }

  const mayShowKey = (text: string) =>
    isLikeSecret(text) || (mayRevealKey.test(text) && tokenFormat.redact(text) !== text)

  /**
   * An external id may look like a key. A text that may be most of a key reaches Postgres only as a
   * hash, although finding a hash reads every user.
   */
  function externalIdFilter(text: string) {
    return mayShowKey(text)
      ? { externalIdHash: createHash('sha256').update(text).digest('hex') }
      : { externalId: text }
  }

  async function byId(id: string, caller: LookupCaller) {
    if (id.startsWith('apk_')) return aboutKey(await keys.get(id, null, caller.lane), caller)
    if (id.startsWith('usr_')) return aboutUser(await users.get(id, caller.lane), caller)
    return null
  }

  async function aboutKey(key: StoredKey | null, caller: LookupCaller): Promise<Lookup | null> {
    if (key === null) return null
    const refusals = await refusalsOf({ keyId: key.id }, caller)
    const counters = counter && { counters: await countersOfKey(counter, key) }
    return { type: 'key', ...(await withOwner(key, caller)), ...counters, refusals }
  }

  async function aboutUser(user: User | null, caller: LookupCaller): Promise<Lookup | null> {
    if (user === null) return null
    const state = user.deleted_at === null ? 'active' : 'deleted'
    return { type: 'user', state, user, refusals: await refusalsOf({ userId: user.id }, caller) }
  }

  /** Applications may give their requests any id. */
  async function aboutRequest(requestId: string, caller: LookupCaller): Promise<Lookup | null> {
    if (!isRequestId(requestId) || mayShowKey(requestId)) return null
    const found = await audit.list({ requestId, limit: entriesMax + 1 }, caller.lane)
    if (found.length === 0) return null
    const listed = { entries: found.slice(0, entriesMax), has_more: found.length > entriesMax }
    const keyId = onlyOne(found.map(({ key_id }) => key_id))
    const key = keyId === null ? null : await keys.get(keyId, null, caller.lane)
    if (key !== null) return { type: 'request', ...(await withOwner(key, caller)), ...listed }
    const userId = onlyOne(found.map(({ user_id }) => user_id))
    const user = userId === null ? null : await users.get(userId, caller.lane)
    return { type: 'request', ...(user !== null && { user }), ...listed }
  }

  async function withOwner(key: StoredKey, { lane, toBody }: LookupCaller) {
    const user = (await users.get(key.userId, lane))!
    const state = key.state === 'active' && user.deleted_at !== null ? ('owner_deleted' as const) : key.state
    return { state, key: toBody(key), user }
  }

  function refusalsOf(of: Pick<AuditFilter, 'keyId' | 'userId'>, { lane }: LookupCaller) {
    return audit.list({ ...of, event: 'auth.refused', limit: entriesMax }, lane)
  }

  return find
}
