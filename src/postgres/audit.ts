/**
 * The audit log in Postgres. Refusals are written in batches; a management action writes its entry
 * in its own statement.
 */
import type { Row } from 'postgres'
import { auditEvents, refusalEvents } from '../../schemas/bounds.ts'
import { operatorRefusalReasons } from '../../schemas/refusal.ts'
import { idOrNone, isRequestId, newId } from '../rules/id.ts'
import type {
  Actor,
  AuditEntry,
  AuditEvent,
  AuditFilter,
  AuditLog,
  AuditPosition,
  OperatorRefusalRecord,
  RefusalRecord,
} from '../stores.ts'
import type { Pool, Query } from './pool.ts'

/** All but `occurred_at`, which is the database's clock. */
const columns = [
  'id',
  'request_id',
  'event',
  'reason',
  'key_id',
  'user_id',
  'actor',
  'method',
  'path',
  'ip',
  'user_agent',
  'details',
]

/** Refused operators wait in their own queue for at most half of the connections. */
const operatorLane = 'operators'

/** `management`: for what operators read. */
export function createAuditLog(pools: { audit: Pool; management: Pool }): AuditLog {
  const read = async (work: (sql: Query) => PromiseLike<readonly Row[]>, lane?: string) =>
    (await pools.management.run(async (sql) => work(sql), lane)).map(toEntry)

  return {
    recordRefusals: (refusals) =>
      pools.audit.run((sql) =>
        insert(
          sql,
          refusals.map((refusal) => ({
            ...rowOf('auth.refused', refusal),
            key_id: refusal.keyId,
            user_id: refusal.userId,
            details: refusal.details,
          })),
        ),
      ),

    recordOperatorRefusal: (refusal) =>
      pools.audit.run((sql) => insert(sql, [rowOf('operator.refused', refusal)]), operatorLane),

    find: (requestId) =>
      read(
        (sql) =>
          sql`select ${entry(sql)} from audit_log where request_id = ${requestId} order by audit_log.occurred_at, id`,
      ),

    list: (filter, lane) =>
      read(
        (sql) => sql`
          select ${entry(sql)} from (${pages(sql, filter)}) as found
          order by found.occurred_at desc, id desc
          limit ${filter.limitsEach ? null : filter.limit}`,
        lane,
      ),

    countRefusals: (by, { limit, ...span }) =>
      pools.management.run(async (sql) => {
        const rows = await sql`
          select ${by === 'ip' ? addressGroup(sql) : sql(by)} as value, count(*)::float8 as refusals from audit_log
          where event in ${sql(refusalEvents)}
            and occurred_at >= to_timestamp(${span.since ?? '-Infinity'}::float8)
            and occurred_at < to_timestamp(${span.until ?? 'Infinity'}::float8)
          group by 1 order by 2 desc, 1 limit ${limit}`
        return rows.map(({ value, refusals }) => ({ value, refusals }))
      }),

    now: () =>
      pools.management.run(async (sql) => {
        const [row] = await sql`select extract(epoch from clock_timestamp())::float8 * 1000 as now_ms`
        return row!.now_ms
      }),
  }
}

/** As the budgets of refusals group them: IPv6 by its /64, but an IPv4 address in any form by itself. */
const addressGroup = (sql: Query) => {
  const address = sql`split_part(ip, '%', 1)::inet`
  return sql`
    case
      when ip not like '%:%' then ip
      when ${address} <<= '::ffff:0:0/96' then host('0.0.0.0'::inet + (${address} - '::ffff:0:0'))
      else network(set_masklen(${address}, 64))::text
    end`
}

/**
 * One JSON value takes one parameter and one prepared statement, whatever the size of the batch.
 */
async function insert(sql: Query, rows: Record<string, unknown>[]) {
  await sql`
    insert into audit_log (${sql(columns)})
    select ${sql(columns)} from json_populate_recordset(null::audit_log, ${JSON.stringify(rows)}::text::json)`
}

const rowOf = (event: AuditEvent, refusal: RefusalRecord | OperatorRefusalRecord) => ({
  id: newId('aud_'),
  request_id: refusal.requestId,
  event,
  reason: refusal.reason,
  method: refusal.method,
  path: refusal.path,
  ip: refusal.ip,
  user_agent: refusal.userAgent,
})

/** A reason names its event. */
function eventsOf({ event, reason }: AuditFilter): readonly AuditEvent[] {
  if (event !== undefined) return [event]
  if (reason === undefined) return auditEvents
  const [byCaller, byOperator] = refusalEvents
  return [(operatorRefusalReasons as readonly string[]).includes(reason) ? byOperator : byCaller]
}

/**
 * Which events are read together, separated by commas. Those of one key, user or request come from its
 * index, so two reads do. Otherwise each event is read by itself, in the order of the primary key and
 * no further than the limit.
 */
function eventGroups(filter: AuditFilter): string[] {
  const { keyId, userId, requestId, limitsEach } = filter
  const events = eventsOf(filter)
  if (limitsEach || (keyId ?? userId ?? requestId) === undefined) return [...events]
  const isRefusal = (event: AuditEvent) => (refusalEvents as readonly AuditEvent[]).includes(event)
  return [events.filter(isRefusal), events.filter((event) => !isRefusal(event))].map(String).filter(Boolean)
}

/**
 * What to read. Three entries about a key do not name it: the rotation of its predecessor, if that made
 * it; the revocation of all keys of its user, which has the time at which the key was revoked; and the
 * deletion of its user, if the key was still usable then.
 */
function asked(sql: Query, filter: AuditFilter) {
  const keyId = filter.keyId === undefined ? null : idOrNone('apk_', filter.keyId)
  const userId = filter.userId === undefined ? null : idOrNone('usr_', filter.userId)
  const groups = sql`
    select unnest(string_to_array(${eventGroups(filter).join(' ')}, ' ')) as of_events,
      ${keyId}::text as of_key, ${userId}::text as of_user, null::timestamptz as at_moment`
  if (keyId === null) return groups
  const events = eventsOf(filter)
  // The collation of the log, for its indexes.
  return sql`
    ${groups}
    union all
    select 'key.rotated', id collate "default", ${userId}, null from api_keys
    where successor_id = ${keyId} and ${events.includes('key.rotated')}
    union all
    select 'user.keys_revoked', null, user_id collate "default", revoked_at from api_keys
    where id = ${keyId} and user_id = coalesce(${userId}, user_id) and revoked_at is not null
      and ${events.includes('user.keys_revoked')}
    union all
    select 'user.deleted', null, users.id collate "default", null from api_keys join users on users.id = user_id
    where api_keys.id = ${keyId} and user_id = coalesce(${userId}, user_id)
      and deleted_at < coalesce(least(revoked_at, expires_at), 'infinity')
      and ${events.includes('user.deleted')}`
}

/** A page for each of what is asked for (sql/postgres/024.do.read-audit-log.sql). */
function pages(sql: Query, filter: AuditFilter) {
  const { requestId, reason, since = null, until = null, after, limit } = filter
  const ofRequest = requestId === undefined || isRequestId(requestId) ? requestId : ''
  return sql`
    select found.* from (${asked(sql, filter)}) as asked
    cross join lateral audit_entries(
      string_to_array(of_events, ','), ${ofRequest ?? null}, of_key, of_user, ${reason ?? null},
      greatest(to_timestamp(${since}), at_moment), least(to_timestamp(${until}), at_moment + interval '1 microsecond'),
      ${after === undefined ? null : placeOf(sql, after)}, ${after?.id ?? null}, ${limit}
    ) as found`
}

/** The moment of this entry, to the microsecond if it is still there. */
const placeOf = (sql: Query, { event, id, ms }: AuditPosition) => sql`
  coalesce((
    select occurred_at from audit_log
    where event = ${event} and id = ${id} and occurred_at >= to_timestamp(${ms / 1000}::float8)
      and occurred_at < to_timestamp(${(ms + 1) / 1000}::float8)
  ), to_timestamp(${ms / 1000}::float8))`

const entry = (sql: Query) => sql`
  id, to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as occurred_at, request_id, event, reason,
  key_id, user_id, actor, method, path, ip, user_agent, details`

const toEntry = (row: Row): AuditEntry => ({ ...(row as AuditEntry) })

/**
 * The audit entry of a change, as an argument of the database function that makes the change, so
 * that neither is committed without the other.
 */
export const auditEntry = (sql: Query, event: AuditEvent, actor: Actor, entry: Entry) =>
  sql`json_populate_record(null::audit_log, ${JSON.stringify({
    id: newId('aud_'),
    request_id: actor.requestId,
    event,
    actor: actor.keyId === null ? actor.operator : `key:${actor.keyId}`,
    method: actor.method,
    path: actor.path,
    ip: actor.ip,
    user_agent: actor.userAgent,
    ...entry,
  })}::text::json)`

/**
 * The same for a change that is one statement: the entry is written if the change returned a row.
 */
export const audited = (sql: Query, changed: string, entry: ReturnType<typeof auditEntry>) => sql`
  insert into audit_log (${sql(columns)})
  select ${sql(columns)} from ${entry} as entry where exists (select from ${sql(changed)})`

interface Entry {
  key_id?: string
  user_id: string | null
  details?: Record<string, unknown>
}
