/** What a start asks about the keys that exist, before it hashes any under its HASH_SECRET. */
import type { Query } from './pool.ts'

export async function hasKeys(sql: Query): Promise<boolean> {
  const [row] = await sql`select exists (select from api_keys) as found`
  return row!.found
}

/**
 * Whether there are usable keys and none is hashed under one of these secrets. Under the right secret the scan ends at the
 * first key, so it takes long only before a refusal. The owner is a subselect: joined, the planner would read all users first.
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
