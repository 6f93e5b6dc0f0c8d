/**
 * The audit log's partitions, one a day (UTC): made ahead, and dropped whole when older than is to be kept. The work is done by
 * functions of the database (sql/postgres).
 */
import type { Query } from './pool.ts'

/** A service that cannot reach its database for a week has other troubles. */
const daysAhead = 7

/** Makes today's and the coming days' partitions where missing. */
export async function ensurePartitions(sql: Query): Promise<void> {
  await sql`select ensure_audit_partitions(${daysAhead}::int)`
}

/** Drops the partitions whose every entry is older than `days`, but for those in use. Gives the names dropped. */
export async function dropPartitionsOlderThan(sql: Query, days: number): Promise<string[]> {
  const dropped = await sql`select drop_audit_partitions(${days}::int) as name`
  return dropped.map(({ name }) => name)
}
