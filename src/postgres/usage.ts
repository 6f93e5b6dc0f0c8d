/**
 * Usage of keys in Postgres, by minute, hour and day. Storing is idempotent, so that two instances
 * may store the same minute (sql/postgres/012.do.usage.sql).
 */
import { type UsageStep, usageStepS } from '../../schemas/bounds.ts'
import type { UsagePoint } from '../../schemas/usage.ts'
import { idOrNone } from '../rules/id.ts'
import { stepStartS, type UsageRange } from '../rules/usage-range.ts'
import type { KeyCount, UsageStore } from '../stores.ts'
import type { Pool, Query } from './pool.ts'

interface UsagePools {
  /** For readers. */
  management: Pool
  /** For what is stored in the background, in time before the counters expire. */
  usage: Pool
  /** For what takes long. */
  rollups: Pool
}

/**
 * If an instance claims a minute and stores nothing of it for this long, it was probably killed.
 * Counters outlive their minute by at least 60 s, so there is time for another one.
 */
const claimS = 15
/** The greatest `integer`. More in a minute can only have been written by something else. */
const requestsMax = 2_147_483_647

const tables = {
  minute: { name: 'key_usage', finer: null },
  hour: { name: 'key_usage_hours', finer: 'minute' },
  day: { name: 'key_usage_days', finer: 'hour' },
} as const

export function createUsageStore({ management, usage, rollups }: UsagePools): UsageStore {
  return {
    read: ({ id, createdAt: storedAt }, { step, sinceS, untilS }, { nowS, live, isLocal }, lane) =>
      management.run(async (sql) => {
        // Minutes are those of the counting clock. If it is behind, keys seem to be created too late.
        const [clock] = await sql`
          select greatest(0, extract(epoch from clock_timestamp())::float8 - ${nowS}::float8) as ahead_s`
        const createdAt = storedAt - clock!.ahead_s
        const unrolledS = step === 'minute' ? {} : await unrolled(sql)
        const asked = { sql, keyId: idOrNone('apk_', id), nowS, live, untilS, unrolledS }
        const data = await sql<UsagePoint[]>`
          select extract(epoch from starts_at)::float8 as start,
            requests::float8 as requests, limited::float8 as limited
          from (${pointsOf(asked, step, sinceS)}) as points
          where starts_at >= to_timestamp(${sinceS}) and starts_at < to_timestamp(${untilS})
          order by 1`
        // Until they are done, this minute and the last may not be stored yet. They are not
        // incomplete if the counter has them.
        const overS = stepStartS('minute', nowS) - 60
        // Nothing can be missing from before the key was created.
        const fromS = (unit: UsageStep) => Math.max(sinceS, stepStartS(unit, createdAt))
        const incomplete = await sql`
          select extract(epoch from date_trunc(${step}, starts_at, 'UTC'))::float8 as start
          from usage_minutes
          where ${isIncomplete(sql)}
            and starts_at >= to_timestamp(${fromS('minute')}) and starts_at < to_timestamp(${untilS})
            and (starts_at < to_timestamp(${overS}) or is_done or ${isLocal})
          group by 1 order by 1`
        const dropped = await droppedSteps(sql, { step, sinceS: fromS(step), untilS }, nowS)
        return {
          data: [...data],
          incomplete: [...dropped, ...incomplete.map(({ start }) => start)],
          createdAt,
        }
      }, lane),

    claim: (minute) =>
      usage.run(async (sql) => {
        const [row] = await sql`
          with claimed as (
            insert into usage_minutes (starts_at, claimed_until)
            values (${startOf(sql, minute)}, clock_timestamp() + make_interval(secs => ${claimS}))
            on conflict (starts_at) do update set claimed_until = excluded.claimed_until
            where not usage_minutes.is_done and usage_minutes.claimed_until < clock_timestamp()
            returning 1
          )
          select exists (select from claimed) as claimed,
            exists (select from usage_minutes where starts_at = ${startOf(sql, minute)} and is_done) as done`
        return row!.claimed ? 'claimed' : row!.done ? 'done' : 'taken'
      }),

    store: (minute, counts) =>
      usage.run(async (sql) => {
        const ids = counts.map(({ keyId }) => keyId).join(',')
        const numbers = counts.map(({ count }) => Math.min(count, requestsMax)).join(',')
        await sql`select store_usage(${startOf(sql, minute)}, ${ids}, ${numbers})`
        await sql`
          update usage_minutes set claimed_until = clock_timestamp() + make_interval(secs => ${claimS})
          where starts_at = ${startOf(sql, minute)} and not is_done`
      }),

    // A counting clock that is ahead must not end a minute early: more requests will be counted in it.
    // What was whole stays so if a later pass is not: had a process begun to count, `report` had cleared it.
    finish: (minute, { whole, done }) =>
      usage.run(async (sql) => {
        const [row] = await sql`
          insert into usage_minutes as known (starts_at, stored, is_done)
          select starts_at, case when ${whole} then (
              select coalesce(sum(requests), 0) from key_usage u where u.starts_at = minute.starts_at
            ) end, ${done} and starts_at + interval '1 minute' <= clock_timestamp()
          from (select ${startOf(sql, minute)} as starts_at) as minute
          on conflict (starts_at) do update set
            stored = case
              when known.unreported <= 0 then coalesce(excluded.stored, known.stored)
              when ${done} then excluded.stored
            end,
            is_done = excluded.is_done, claimed_until = '-infinity'
          where not known.is_done
          returning ${isIncomplete(sql)} as is_incomplete`
        return !row?.is_incomplete
      }),

    // What was stored before a process began to count is not the whole minute. If that process is killed,
    // perhaps nothing else shows it.
    report: (minute, { requests, unreported = 0, mayLackCounts = false }) =>
      usage.run(async (sql) => {
        await sql`
          insert into usage_minutes as known (starts_at, reported, unreported, may_lack_counts)
          values (${startOf(sql, minute)}, ${requests}, ${unreported}, ${mayLackCounts})
          on conflict (starts_at) do update set
            stored = case when excluded.unreported <= 0 or known.is_done then known.stored end,
            reported = known.reported + excluded.reported,
            unreported = known.unreported + excluded.unreported,
            may_lack_counts = known.may_lack_counts or excluded.may_lack_counts`
      }),

    resume: (minute) =>
      usage.run(async (sql) => {
        const counts = await sql<KeyCount[]>`
          select key_id as "keyId", requests::float8 as count from key_usage where starts_at = ${startOf(sql, minute)}`
        const [known] = await sql`
          select stored is null as is_cut from usage_minutes where starts_at = ${startOf(sql, minute)}`
        return { counts: [...counts], isCut: known?.is_cut ?? false }
      }),

    // An hour is rolled up only once, so a counting clock that is ahead must not end it early.
    rollUp: (nowS) =>
      rollups.run(async (sql) => {
        const [row] = await sql`
          select roll_up_usage(least(to_timestamp(${nowS}), clock_timestamp())) as rolled_up`
        return row!.rolled_up
      }),
  }
}

/** Whether a minute in usage_minutes may lack requests. The index usage_minutes_incomplete says the same. */
const isIncomplete = (sql: Query) =>
  sql`(stored is null or stored < reported or (may_lack_counts and unreported > 0))`

const startOf = (sql: Query, minute: number) => sql`to_timestamp(${minute * 60}::float8)`

/** The least that USAGE_RETENTION_DAYS allows, and for how long hours are stored at least. */
const storedDaysMin = { minute: 1, hour: 400 }

/** The starts of steps that may have been dropped (sql/postgres/023), in Unix seconds. */
async function droppedSteps(
  sql: Query,
  { step, sinceS, untilS }: UsageRange,
  nowS: number,
): Promise<number[]> {
  if (step === 'day') return []
  const storedFromS = stepStartS('day', nowS) - storedDaysMin[step] * usageStepS.day
  const steps: number[] = []
  for (let start = sinceS; start < Math.min(untilS, storedFromS); start += usageStepS[step]) steps.push(start)
  if (steps.length === 0) return []
  if (step === 'hour') {
    const [row] = await sql`select extract(epoch from min(starts_at))::float8 as first from key_usage_hours`
    return steps.filter((start) => start < (row!.first ?? storedFromS))
  }
  // Not only before the first one: a day that something depends on stays when later ones are dropped.
  const days = await sql`
    select extract(epoch from to_date(right(c.relname, 8), 'YYYYMMDD'))::float8 as start
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'key_usage'::regclass and c.relname ~ '^key_usage_[0-9]{8}$'`
  const stored = new Set(days.map(({ start }) => start))
  const missing = new Set(steps.map((start) => stepStartS('day', start)).filter((day) => !stored.has(day)))
  // On a day without hours, no instance ran.
  const used = await sql`
    select extract(epoch from day)::float8 as start
    from (select to_timestamp(unnest(${`{${[...missing].join()}}`}::text::float8[])) as day) as missing
    where day < to_timestamp(${stepStartS('day', nowS) - storedDaysMin.hour * usageStepS.day})
      or exists (select from key_usage_hours where starts_at >= day and starts_at < day + interval '1 day')`
  const dropped = new Set(used.map(({ start }) => start))
  return steps.filter((start) => dropped.has(stepStartS('day', start)))
}

interface Asked {
  sql: Query
  keyId: string
  nowS: number
  live: UsagePoint[]
  untilS: number
  unrolledS: Unrolled
}

/** The start of the first step with finer rows that are not rolled up, in Unix seconds. */
type Unrolled = { [step in UsageStep]?: number | null }

/**
 * Nothing is rolled up while no instance runs, so these may be long ago. Steps that were rolled up too
 * early, by a clock that was ahead, do not count (sql/postgres/023.do.usage-of-clocks-ahead.sql).
 */
async function unrolled(sql: Query): Promise<Unrolled> {
  const [row] = await sql`
    with minutes as (
      select min(starts_at) as first from key_usage
      where starts_at >= (
        select coalesce(max(starts_at) + interval '1 hour', '-infinity') from key_usage_hours
        where starts_at <= now() - interval '1 hour'
      )
    ), hours as (
      select min(starts_at) as first from key_usage_hours
      where starts_at >= (
        select coalesce(max(starts_at) + interval '24 hours', '-infinity') from key_usage_days
        where starts_at <= now() - interval '24 hours'
      )
    )
    select extract(epoch from date_trunc('hour', minutes.first, 'UTC'))::float8 as hour,
      extract(epoch from date_trunc('day', least(hours.first, minutes.first), 'UTC'))::float8 as day
    from minutes, hours`
  return row!
}

/**
 * The key's points from `fromS` on: those of the step's own table, and for the steps that may not be
 * rolled up yet (at least this one and the one before) the sums of finer points. For a moment, or while
 * only a part is stored, a step has both: the one with more requests is right. If they are equal, the
 * stored one is, because it was judged by the limit of its time.
 */
function pointsOf(asked: Asked, step: UsageStep, fromS: number): ReturnType<Query> {
  const { sql, keyId, nowS, live, untilS, unrolledS } = asked
  const { name, finer } = tables[step]
  const lengthS = usageStepS[step]
  const recentS = Math.max(fromS, Math.min(stepStartS(step, nowS) - lengthS, unrolledS[step] ?? Infinity))
  const recent =
    finer === null
      ? sql`
        select to_timestamp(start), requests, limited, 1
        from json_to_recordset(${JSON.stringify(live)}::text::json) as live (start float8, requests float8, limited float8)`
      : sql`
        select date_trunc(${step}, starts_at, 'UTC'), sum(requests), sum(limited), 1
        from (${pointsOf(asked, finer, recentS)}) as finer group by 1`
  return sql`
    select distinct on (starts_at) starts_at, requests, limited from (
      select starts_at, requests, limited, 0 as rank from ${sql(name)}
      where key_id = ${keyId}
        and starts_at >= to_timestamp(${fromS}::float8) and starts_at < to_timestamp(${untilS}::float8)
        and starts_at = any (array(
          select generate_series(to_timestamp(${fromS}::float8), to_timestamp(${untilS - lengthS}::float8), make_interval(secs => ${lengthS}))
        ))
      union all ${recent}
    ) as known order by starts_at, requests desc, rank`
}
