/**
 * The HASH_SECRET of an embedded database: created once, and stored beside the data that is
 * worthless without it.
 */
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { createSecret, readSecret } from './secret-file.ts'

/**
 * `isNeeded`: whether there are keys, which only the lost secret can find. If so, no new one is
 * created in its place.
 */
export async function readOrCreateHashSecret(
  dataDir: string,
  isNeeded: () => Promise<boolean>,
): Promise<string> {
  const file = join(dataDir, 'hash-secret')
  const existing = readSecret(file)
  if (existing !== null) return existing
  if (await isNeeded())
    throw new Error(
      `${file} is missing, and every key in the database was made under it: restore it, or set HASH_SECRET to its content`,
    )
  return createSecret(file, randomBytes(32).toString('base64url'))
}
