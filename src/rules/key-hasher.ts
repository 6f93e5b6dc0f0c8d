/**
 * What the database stores of a token: its HMAC-SHA256 under HASH_SECRET. Without the secret, a
 * copy of the table cannot even be tested against guesses.
 */
import { createHmac, createSecretKey, type KeyObject } from 'node:crypto'

/** Hashes of one token, in hex. */
export interface TokenHashes {
  readonly hash: string
  /** Under HASH_SECRET_PREVIOUS; null if it is not set. */
  readonly previousHash: string | null
}

export interface KeyHasher {
  /** Identifies HASH_SECRET without revealing it: 16 hex digits. */
  readonly secretId: string
  /** The same for HASH_SECRET_PREVIOUS; null if it is not set. */
  readonly previousSecretId: string | null
  /** Under HASH_SECRET: 32 bytes. */
  hash(token: string): Buffer
  /**
   * Under both secrets, always: the time this takes must not reveal under which one a key is
   * stored.
   */
  hashesOf(token: string): TokenHashes
}

export function keyHasher(secret: string, previous: string | null = null): KeyHasher {
  const key = createSecretKey(secret, 'utf8')
  const previousKey = previous === null ? null : createSecretKey(previous, 'utf8')
  return {
    secretId: idOf(key),
    previousSecretId: previousKey && idOf(previousKey),
    hash: (token) => hmac(token, key).digest(),
    hashesOf: (token) => ({
      hash: hmac(token, key).digest('hex'),
      previousHash: previousKey && hmac(token, previousKey).digest('hex'),
    }),
  }
}

/** How many keys are stored under each secret. `counts`: keys by the id of their secret. */
export function tallySecrets(
  counts: ReadonlyMap<string, number>,
  { secretId, previousSecretId }: { secretId: string | null; previousSecretId: string | null },
) {
  const under = (id: string | null) => (id === null ? 0 : (counts.get(id) ?? 0))
  const usable = [...counts.values()].reduce((sum, keys) => sum + keys, 0)
  const current = under(secretId)
  const previous = under(previousSecretId)
  return { usable, current, previous, other: usable - current - previous }
}

const hmac = (text: string, key: KeyObject) => createHmac('sha256', key).update(text)

/** The first 8 bytes of the HMAC of a constant. */
const idOf = (key: KeyObject) => hmac('latchkey hash secret id', key).digest('hex').slice(0, 16)
