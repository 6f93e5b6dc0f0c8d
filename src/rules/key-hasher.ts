/**
 * What the database stores of a token: its HMAC-SHA256 under HASH_SECRET. Without the secret, a
 * copy of the table cannot even be tested against guesses.
 */
import { createHmac } from 'node:crypto'

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
  const previousHashOf = (token: string) => (previous === null ? null : hmac(token, previous).toString('hex'))
  return {
    secretId: idOf(secret),
    previousSecretId: previous === null ? null : idOf(previous),
    hash: (token) => hmac(token, secret),
    hashesOf: (token) => ({ hash: hmac(token, secret).toString('hex'), previousHash: previousHashOf(token) }),
  }
}

const hmac = (text: string, secret: string) => createHmac('sha256', secret).update(text).digest()

/** The first 8 bytes of the HMAC of a constant. */
const idOf = (secret: string) => hmac('latchkey hash secret id', secret).toString('hex').slice(0, 16)
