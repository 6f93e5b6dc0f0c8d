/** Which secrets the existing keys were hashed under, and whether KEY_PREFIX fits them. */
import { usable } from './key-rows.ts'
import type { Query } from './pool.ts'

export async function hasKeys(sql: Query): Promise<boolean> {
  const [row] = await sql`select exists (select from api_keys) as found`
  return row!.found
}

/** Whether there are usable keys, none of them hashed under one of these secrets. */
export const hasOnlyKeysOfOtherSecrets = (sql: Query, secretIds: string[]) =>
  hasOnlyOtherKeys(sql, sql`hash_secret_id in ${sql(secretIds)}`)

/** Whether there are usable keys, and none of them begins with this prefix. */
export const hasOnlyKeysOfOtherPrefixes = (sql: Query, prefix: string) =>
  hasOnlyOtherKeys(sql, sql`starts_with(key_prefix, ${`${prefix}_`})`)

/**
 * With the right secret or prefix the scan ends at the first key, so it is slow only when the start
 * is refused. The owner is a subselect: with a join, the planner would read all users first.
 */
async function hasOnlyOtherKeys(sql: Query, fits: ReturnType<Query>): Promise<boolean> {
  const anyUsable = sql`
    select from api_keys k
    where ${usable(sql)} and (select deleted_at is null from users where users.id = k.user_id)`
  const [row] = await sql`select exists (${anyUsable}) and not exists (${anyUsable} and ${fits}) as found`
  return row!.found
}

/** Each usable key, with its owner. */
export const usableKeys = (sql: Query) => sql`
  api_keys join users on users.id = user_id
  where ${usable(sql)} and deleted_at is null`

/** How many usable keys are stored under each secret, by its id. */
export async function keysBySecret(sql: Query): Promise<Map<string, number>> {
  const rows = await sql`
    select hash_secret_id as secret_id, count(*)::float8 as keys
    from ${usableKeys(sql)} group by 1`
  return new Map(rows.map(({ secret_id, keys }) => [secret_id, keys]))
}
