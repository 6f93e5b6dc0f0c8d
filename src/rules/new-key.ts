/** A key about to be created: its secret for the caller, and what the database stores. */
import { newId } from './id.ts'
import type { KeyHasher } from './key-hasher.ts'
import type { TokenFormat } from './token.ts'

export interface NewKey {
  id: string
  userId: string
  name: string
  hash: Buffer
  /** Which HASH_SECRET made the hash. */
  hashSecretId: string
  displayPrefix: string
  rateLimitRpm: number
  expiresAt: number | null
}

/** Mints a token and makes the key that goes with it. Stores nothing. */
export type MintKey = (wanted: Pick<NewKey, 'userId' | 'name' | 'rateLimitRpm' | 'expiresAt'>) => {
  token: string
  key: NewKey
}

export const keyMinter =
  (format: TokenFormat, hasher: KeyHasher): MintKey =>
  (wanted) => {
    const token = format.mint()
    return {
      token,
      key: {
        id: newId('apk_'),
        ...wanted,
        hash: hasher.hash(token),
        hashSecretId: hasher.secretId,
        displayPrefix: format.displayPrefixOf(token),
      },
    }
  }
