/** A key about to be made: its secret, for whoever asked, and what is stored of it. */
import { newId } from './id.ts'
import { displayPrefixOf, hashSecretId, hashToken, mintToken } from './token.ts'

export interface NewKey {
  id: string
  userId: string
  name: string
  hash: Buffer
  /** Of the HASH_SECRET that the hash was made under. */
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
