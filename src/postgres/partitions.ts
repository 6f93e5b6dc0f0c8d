/**
 * The partitions of the audit log and of usage, one a day (UTC): created ahead of time, and dropped
 * whole once they are past their retention. Database functions do the work (sql/postgres).
 */
import type { Query } from './pool.ts'

/** A service that cannot reach its database for a week has other troubles. */
const daysAhead = 7

/** Creates the missing partitions for today and the coming days. */
export async function ensurePartitions(sql: Query): Promise<void> {
  await sql`select ensure_audit_partitions(${daysAhead}::int), ensure_usage_partitions(${daysAhead}::int)`
}

/**
 * Drops partitions in which every entry is older than `days`, except those in use: the oldest 50 at
 * most, and none while another instance does. Resolves to the names of the dropped ones.
 */
export async function dropAuditPartitions(sql: Query, days: number): Promise<string[]> {
  const dropped = await sql`select drop_audit_partitions(${days}::int) as name`
  return dropped.map(({ name }) => name)
}

/** The same for usage by minute. If there are none, a day of hours that are past their time. */
export async function dropUsagePartitions(sql: Query, days: number): Promise<string[]> {
  const dropped = await sql`select drop_usage_partitions(${days}::int) as name`
  return dropped.map(({ name }) => name)
}
