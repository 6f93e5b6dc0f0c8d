import type postgres from 'postgres'

/** The keys of one user, or all of them. */
export async function countKeys(sql: postgres.Sql, userId: string | null = null): Promise<number> {
  const [row] =
    await sql`select count(*)::int as keys from api_keys where user_id = coalesce(${userId}, user_id)`
  return row!.keys
}
