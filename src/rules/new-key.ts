/** A key about to be created: its secret for the caller, and what the database stores. */
import { newId } from './id.ts'
import type { KeyHasher } from './key-hasher.ts'
import type { TokenFormat } from './token.ts'

/** What comes from the token. A rotated key passes on the rest to its successor. */
export interface MintedKey {
  id: string
  hash: Buffer
  /** Which HASH_SECRET made the hash. */
  hashSecretId: string
  displayPrefix: string
}

export interface NewKey extends MintedKey {
  userId: string
  name: string
  rateLimitRpm: number
  expiresAt: number | null
}

/** Mints a token and makes the key that goes with it. Stores nothing. */
export type MintKey = <Wanted extends object>(wanted: Wanted) => { token: string; key: Wanted & MintedKey }

export const keyMinter =
  (format: TokenFormat, hasher: KeyHasher): MintKey =>
  (wanted) => {
    const token = format.mint()
    return {
      token,
      key: {
        ...wanted,
        id: newId('apk_'),
        hash: hasher.hash(token),
        hashSecretId: hasher.secretId,
        displayPrefix: format.displayPrefixOf(token),
      },
    }
  }
