/** The instance's database, for what no endpoint tells and what no endpoint does. */
import postgres from 'postgres'
import type { Test } from 'tap'

export function openDatabase(t: Test, url: string): postgres.Sql {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  return sql
}

export async function countKeys(sql: postgres.Sql, userId: string): Promise<number> {
  const [row] = await sql`select count(*)::int as keys from api_keys where user_id = ${userId}`
  return row!.keys
}
