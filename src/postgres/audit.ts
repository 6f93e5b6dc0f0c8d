/**
 * The audit log in Postgres. Refusals are written in batches; a management action writes its entry
 * in its own statement.
 */
import type { Row } from 'postgres'
import { newId } from '../rules/id.ts'
import type { Actor, AuditEntry, AuditEvent, AuditLog } from '../stores.ts'
import type { Pool, Query } from './pool.ts'

const columns = [
  'id',
  'request_id',
  'event',
  'reason',
  'key_id',
  'user_id',
  'method',
  'path',
  'ip',
  'user_agent',
] as const

export function createAuditLog(pools: { audit: Pool; operator: Pool }): AuditLog {
  return {
    async recordRefusals(refusals) {
      const rows = refusals.map((refusal) => ({
        id: newId('aud_'),
        request_id: refusal.requestId,
        event: 'auth.refused' satisfies AuditEvent,
        reason: refusal.reason,
        key_id: refusal.keyId,
        user_id: refusal.userId,
        method: refusal.method,
        path: refusal.path,
        ip: refusal.ip,
        user_agent: refusal.userAgent,
      }))
      // One JSON value takes one parameter and one prepared statement, whatever the size of the
      // batch.
      await pools.audit.run(
        (sql) => sql`
          insert into audit_log (${sql(columns)})
          select ${sql(columns)} from json_populate_recordset(null::audit_log, ${JSON.stringify(rows)}::text::json)`,
      )
    },

    find: (requestId) =>
      pools.operator.run(async (sql) =>
        (
          await sql`select ${entry(sql)} from audit_log where request_id = ${requestId} order by audit_log.occurred_at, id`
        ).map(toEntry),
      ),

    list: ({ reason, keyId, since, limit }) =>
      pools.operator.run(async (sql) =>
        (
          await sql`
              select ${entry(sql)} from audit_log
              where true
                ${reason === undefined ? sql`` : sql`and reason = ${reason}`}
                ${keyId === undefined ? sql`` : sql`and key_id = ${keyId}`}
                ${since === undefined ? sql`` : sql`and occurred_at >= to_timestamp(${since})`}
              order by audit_log.occurred_at desc, id desc
              limit ${limit}`
        ).map(toEntry),
      ),
  }
}

const entry = (sql: Query) => sql`
  id, to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as occurred_at, request_id, event, reason,
  key_id, user_id, actor_key_id, method, path, ip, user_agent, details`

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
    actor_key_id: actor.keyId,
    method: actor.method,
    path: actor.path,
    ip: actor.ip,
    user_agent: actor.userAgent,
    ...entry,
  })}::text::json)`

interface Entry {
  key_id?: string
  user_id: string | null
  details?: Record<string, unknown>
}
