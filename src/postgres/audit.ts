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
  OperatorRefusalRecord,
  RefusalRecord,
} from '../stores.ts'
import { safeId } from './key-rows.ts'
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

/** `operator`: for what operators read. */
export function createAuditLog(pools: { audit: Pool; operator: Pool }): AuditLog {
  const read = async (work: (sql: Query) => PromiseLike<readonly Row[]>, lane?: string) =>
    (await pools.operator.run(async (sql) => work(sql), lane)).map(toEntry)

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

    /** Event by event: in the order of the primary key, each is read no further than the limit. */
    list: (filter, lane) =>
      read(
        (sql) => sql`
          select ${entry(sql)} from (
            select found.* from (${asked(sql, filter)}) as asked
            cross join lateral (
              select * from audit_log
              where event = for_event ${conditions(sql, filter)}
              order by occurred_at desc, id desc
              limit ${filter.limit}
            ) as found
            ${revokedWithAll(sql, filter)}
          ) as found
          order by found.occurred_at desc, id desc
          limit ${filter.limitsEach ? null : filter.limit}`,
        lane,
      ),

    countRefusals: (by, { limit, ...span }) =>
      pools.operator.run(async (sql) => {
        const rows = await sql`
          select ${by === 'ip' ? addressGroup(sql) : sql(by)} as value, count(*)::float8 as refusals from audit_log
          where event in ${sql(refusalEvents)} ${conditions(sql, span)}
          group by 1 order by 2 desc, 1 limit ${limit}`
        return rows.map(({ value, refusals }) => ({ value, refusals }))
      }),

    now: () =>
      pools.operator.run(async (sql) => {
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
 * A key made by rotation has no entry of its own: the `key.rotated` entry is under its predecessor.
 */
function asked(sql: Query, filter: AuditFilter) {
  const keyId = filter.keyId === undefined ? undefined : safeId(filter.keyId)
  const events = sql`unnest(string_to_array(${eventsOf(filter).join(',')}, ',')) as for_event`
  if (keyId === undefined) return sql`select ${events}`
  return sql`
    select ${events}, ${keyId} as for_key
    union all
    select 'key.rotated', id from api_keys
    where successor_id = ${keyId} and ${eventsOf(filter).includes('key.rotated')}`
}

/**
 * A key that was revoked with all keys of its user has no entry of its own either. The entry of them
 * all has the time of the revocation.
 */
function revokedWithAll(sql: Query, { keyId, ...filter }: AuditFilter) {
  if (keyId === undefined || !eventsOf(filter).includes('user.keys_revoked')) return sql``
  return sql`
    union all
    select found.* from api_keys as k
    cross join lateral (
      select * from audit_log
      where event = 'user.keys_revoked' and user_id = k.user_id and occurred_at = k.revoked_at
        ${conditions(sql, filter)}
    ) as found
    where k.id = ${safeId(keyId)}`
}

function conditions(sql: Query, filter: Omit<AuditFilter, 'limit'>) {
  const { requestId, keyId, userId, reason, since, until, after } = filter
  return sql`
    ${requestId === undefined ? sql`` : sql`and request_id = ${isRequestId(requestId) ? requestId : ''}`}
    ${keyId === undefined ? sql`` : sql`and key_id = for_key`}
    ${userId === undefined ? sql`` : sql`and user_id = ${idOrNone('usr_', userId)}`}
    ${reason === undefined ? sql`` : sql`and reason = ${reason}`}
    ${since === undefined ? sql`` : sql`and occurred_at >= to_timestamp(${since})`}
    ${until === undefined ? sql`` : sql`and occurred_at < to_timestamp(${until})`}
    ${
      after === undefined
        ? sql``
        : sql`and (occurred_at, id) < (coalesce((
            select occurred_at from audit_log
            where event = ${after.event} and id = ${after.id} and occurred_at >= to_timestamp(${after.ms / 1000}::float8)
              and occurred_at < to_timestamp(${(after.ms + 1) / 1000}::float8)
          ), to_timestamp(${after.ms / 1000}::float8)), ${after.id})`
    }`
}

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
