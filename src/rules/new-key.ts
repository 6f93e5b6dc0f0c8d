/** A key about to be made: its secret, for whoever asked, and what is stored of it. */
import { newId } from './id.ts'
import { hashSecretId, hashToken, mintToken, shownPrefix } from './token.ts'

export interface NewKey {
  id: string
  userId: string
  name: string
  hash: Buffer
  /** Of the HASH_SECRET that the hash was made under. */
  hashSecretId: string
  keyPrefix: string
  rateLimitRpm: number
  expiresAt: number | null
}

export function newKey(
  wanted: Pick<NewKey, 'userId' | 'name' | 'rateLimitRpm' | 'expiresAt'>,
  { keyPrefix, hashSecret }: { keyPrefix: string; hashSecret: string },
): { token: string; key: NewKey } {
  const token = mintToken(keyPrefix)
  return {
    token,
    key: {
      id: newId('apk_'),
      ...wanted,
      hash: hashToken(token, hashSecret),
      hashSecretId: hashSecretId(hashSecret),
      keyPrefix: shownPrefix(token, keyPrefix),
    },
  }
}
