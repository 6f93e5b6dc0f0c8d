/**
 * The secrets under which keys are stored: from the configuration, or made for an embedded
 * database. Also checks that they and KEY_PREFIX fit the existing keys.
 */
import { join } from 'node:path'
import type { Config } from '../config.ts'
import { hasKeys, hasOnlyKeysOfOtherPrefixes, hasOnlyKeysOfOtherSecrets } from '../postgres/hash-secrets.ts'
import { createPool } from '../postgres/pool.ts'
import { type KeyHasher, keyHasher } from '../rules/key-hasher.ts'
import type { Database } from './database.ts'
import type { OpenOptions } from './options.ts'

/** Checking the secret or the prefix scans all keys: 0.2 s for a million. */
const timeoutMs = 30_000

/**
 * Rejects a secret that fits none of the existing keys where it matters. It is almost certainly the
 * wrong one: new keys would hide that, and a scan would miss every key that has leaked.
 */
export async function openHasher(
  config: Config,
  { url, ssl }: Database,
  { role, needsHashSecret, needsKeyPrefix }: OpenOptions,
): Promise<KeyHasher> {
  const { dataDir, hashSecretPrevious, acceptNewHashSecret, tokenPrefix } = config
  const pool = createPool({ url, ssl, purpose: 'hash secret', max: 1, timeoutMs })
  try {
    const secret = config.hashSecret ?? (await storedSecret(dataDir, () => pool.run(hasKeys)))
    const hasher = keyHasher(secret, hashSecretPrevious)
    const ids = [hasher.secretId, hasher.previousSecretId].filter((id) => id !== null)
    const isNeeded = role === 'serve' || needsHashSecret
    if (isNeeded && !acceptNewHashSecret && (await pool.run((sql) => hasOnlyKeysOfOtherSecrets(sql, ids))))
      throw wrongSecret(config)
    if (needsKeyPrefix && (await pool.run((sql) => hasOnlyKeysOfOtherPrefixes(sql, tokenPrefix))))
      throw new Error(
        'none of the usable keys in the database begins with KEY_PREFIX: set it to the prefix they were made with',
      )
    return hasher
  } finally {
    await pool.close()
  }
}

async function storedSecret(dataDir: string, isNeeded: () => Promise<boolean>) {
  const { readOrCreateHashSecret } = await import('../embedded/hash-secret.ts')
  return readOrCreateHashSecret(dataDir, isNeeded)
}

function wrongSecret({ hashSecret, hashSecretPrevious, dataDir }: Config): Error {
  const secret = hashSecret === null ? `the secret in ${join(dataDir, 'hash-secret')}` : 'HASH_SECRET'
  const secrets = hashSecretPrevious === null ? secret : `${secret} or HASH_SECRET_PREVIOUS`
  return new Error(
    `none of the usable keys in the database was made under ${secrets}: set HASH_SECRET to the secret they were made under, or set ACCEPT_NEW_HASH_SECRET=1 to give them all up`,
  )
}
