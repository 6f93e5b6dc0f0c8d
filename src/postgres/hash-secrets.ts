/** Checks the existing keys at start, before any key is hashed under the configured HASH_SECRET. */
import type { Query } from './pool.ts'

export async function hasKeys(sql: Query): Promise<boolean> {
  const [row] = await sql`select exists (select from api_keys) as found`
  return row!.found
}

/**
 * Whether there are usable keys, none of them hashed under one of these secrets. With the right
 * secret the scan ends at the first key, so it is slow only when the start is refused. The owner is
 * a subselect: with a join, the planner would read all users first.
 */
export async function hasOnlyKeysOfOtherSecrets(sql: Query, secretIds: string[]): Promise<boolean> {
  const usable = sql`
    select from api_keys k
    where revoked_at is null and (expires_at is null or expires_at > now())
      and (select deleted_at is null from users where users.id = k.user_id)`
  const [row] = await sql`
    select exists (${usable}) and not exists (${usable} and hash_secret_id in ${sql(secretIds)}) as found`
  return row!.found
}
