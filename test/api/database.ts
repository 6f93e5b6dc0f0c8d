/** The instance's database, for what no endpoint shows and no endpoint does. */
import postgres from 'postgres'
import type { Test } from 'tap'

export function openDatabase(t: Test, url: string): postgres.Sql {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  return sql
}

/** The keys of one user, or all of them. */
export async function countKeys(sql: postgres.Sql, userId: string | null = null): Promise<number> {
  const [row] =
    await sql`select count(*)::int as keys from api_keys where user_id = coalesce(${userId}, user_id)`
  return row!.keys
}
