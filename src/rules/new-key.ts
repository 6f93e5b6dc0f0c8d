/** A key about to be created: its secret for the caller, and what the database stores. */
import { newId } from './id.ts'
import { displayPrefixOf, hashSecretId, hashToken, mintToken } from './token.ts'

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

export function newKey(
  wanted: Pick<NewKey, 'userId' | 'name' | 'rateLimitRpm' | 'expiresAt'>,
  { tokenPrefix, hashSecret }: { tokenPrefix: string; hashSecret: string },
): { token: string; key: NewKey } {
  const token = mintToken(tokenPrefix)
  return {
    token,
    key: {
      id: newId('apk_'),
      ...wanted,
      hash: hashToken(token, hashSecret),
      hashSecretId: hashSecretId(hashSecret),
      displayPrefix: displayPrefixOf(token, tokenPrefix),
    },
  }
}
