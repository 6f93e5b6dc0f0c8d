/**
 * The audit log's partitions, one a day (UTC): made ahead, and dropped whole when older than is to be kept.
 */
import type { Query } from './pool.ts'

/** A service that cannot reach its database for a week has other troubles. */
const daysAhead = 7

const lockName = 'latchkey audit partitions'

/** Makes today's and the coming days' partitions where missing. By the database's clock, which also stamps the entries. */
export async function ensurePartitions(sql: Query): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtext(${lockName}))`
  const missing = await sql<{ day: string; next: string }[]>`
    select to_char(day, 'YYYY-MM-DD') as day, to_char(day + 1, 'YYYY-MM-DD') as next
    from (select (now() at time zone 'UTC')::date + n as day from generate_series(0, ${daysAhead}::int) n) days
    where to_regclass('audit_log_' || to_char(day, 'YYYYMMDD')) is null`
  for (const { day, next } of missing) {
    const name = `audit_log_${day.replaceAll('-', '')}`
    // Made apart and then attached: that lets inserts into the other partitions go on.
    await sql.unsafe(`
      create table ${name} (like audit_log including defaults including constraints);
      alter table audit_log attach partition ${name} for values from ('${day} 00:00:00+00') to ('${next} 00:00:00+00');`)
  }
}

/** Drops the partitions whose every entry is older than `days`. Gives the names dropped. */
export async function dropPartitionsOlderThan(sql: Query, days: number): Promise<string[]> {
  await sql`select pg_advisory_xact_lock(hashtext(${lockName}))`
  const old = await sql<{ name: string }[]>`
    select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'audit_log'::regclass and c.relname ~ '^audit_log_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (now() at time zone 'UTC')::date - ${days}::int
    order by 1`
  for (const { name } of old) await sql`drop table ${sql(name)}`
  return old.map(({ name }) => name)
}
