/**
 * What to do about tokens found where they should not be: say which are keys of this service, and
 * revoke them. That includes expired ones and those of deleted users: an instance that has not heard of
 * it may still accept them. Only their hashes reach Postgres, and nothing is logged.
 */
import type { LeakedKey, ScanResult } from '../../../schemas/scan.ts'
import type { KeyHasher } from '../../rules/key-hasher.ts'
import { denialReason } from '../../rules/key-state.ts'
import type { TokenFormat } from '../../rules/token.ts'
import { type Actor, type KeyCredential, type KeyStore, Unavailable } from '../../stores.ts'

export interface LeakedKeysOptions {
  keys: Pick<KeyStore, 'findByHash' | 'revoke'>
  hasher: KeyHasher
  tokenFormat: TokenFormat
}

export interface Leaks {
  /**
   * Looks up any number of tokens, and returns those that are keys of this service. A token may
   * come again, in this call or a later one. A key that cannot be revoked holds up no other one.
   */
  add(tokens: string[]): Promise<Set<string>>
  /** One error for each key whose revocation is not confirmed. */
  readonly faults: readonly Error[]
  result(): ScanResult
}

interface CollectOptions {
  /** What the audit log should say about where a token was found. */
  detailsOf?: (token: string) => Record<string, string> | undefined
  /** Once aborted, `add` begins nothing more and rejects. */
  stopped?: AbortSignal
}

/** Tokens in one statement. */
const lookUpMax = 500
/** While Redis is down, each waits for seconds. More would queue for too long for a connection. */
const revocationsAtOnce = 32
/**
 * A key revoked this recently is revoked again: that response may have been lost before every
 * instance saw the change. No cached copy lives longer.
 */
const recentS = 600
/** A file could hold any number of made-up tokens: beyond this, one that comes again counts again. */
const unknownMax = 100_000

/** `by`: who revokes what is found; null to only look. */
export function collectLeaks(
  { keys, hasher, tokenFormat }: LeakedKeysOptions,
  by: Actor | null,
  { detailsOf = () => undefined, stopped }: CollectOptions = {},
): Leaks {
  const leaked = new Map<string, LeakedKey>()
  const unknownHashes = new Set<string>()
  const faults: Error[] = []
  let unknown = 0

  async function add(tokens: string[]) {
    const known = new Set<string>()
    for (let i = 0; i < tokens.length; i += lookUpMax) {
      stopped?.throwIfAborted()
      const some = tokens.slice(i, i + lookUpMax)
      const found = await lookUp(some)
      for (const { token } of found) known.add(token)
      for (const token of some) if (!known.has(token)) countUnknown(hasher.hashesOf(token).hash)
      await settleAll(found)
    }
    return known
  }

  async function lookUp(tokens: string[]) {
    const tokenOf = new Map<string, string>()
    for (const token of tokens) {
      const { hash, previousHash } = hasher.hashesOf(token)
      for (const one of [hash, previousHash]) if (one !== null) tokenOf.set(one, token)
    }
    const { found, role } = await keys.findByHash([...tokenOf.keys()])
    if (role !== 'primary' && found.length < tokens.length)
      throw new Unavailable('Postgres takes no writes: the others may be keys that it lacks')
    return found.map((key) => ({ key, token: tokenOf.get(key.hash)! }))
  }

  function countUnknown(hash: string) {
    if (unknownHashes.has(hash)) return
    unknown++
    if (unknownHashes.size < unknownMax) unknownHashes.add(hash)
  }

  async function settleAll(found: { key: KeyCredential; token: string }[]) {
    const fresh = found.filter(({ key }) => !leaked.has(key.id))
    for (let i = 0; i < fresh.length; i += revocationsAtOnce) {
      stopped?.throwIfAborted()
      const some = fresh.slice(i, i + revocationsAtOnce)
      await Promise.all(some.map(({ key, token }) => settle(key, token)))
    }
  }

  async function settle(key: KeyCredential, token: string) {
    const leak: LeakedKey = {
      id: key.id,
      key_prefix: tokenFormat.displayPrefixOf(token),
      user_id: key.userId,
      state: (denialReason(key, key.nowS) ?? 'active') as LeakedKey['state'],
      revoked: false,
    }
    leaked.set(key.id, leak)
    const isRevoked = key.revokedAt !== null
    const isRecent = isRevoked && key.nowS - key.revokedAt! < recentS
    if (by === null || (isRevoked && !isRecent)) return
    try {
      const { ok } = await keys.revoke(key.id, null, by, detailsOf(token))
      if (!ok) throw new Unavailable('a key was not revoked')
    } catch (error) {
      faults.push(error as Error)
      return
    }
    if (!isRevoked) Object.assign(leak, { state: 'revoked', revoked: true })
  }

  return { add, faults, result: () => ({ keys: [...leaked.values()], unknown }) }
}
