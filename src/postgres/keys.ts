/**
 * API keys in Postgres. Ownership is part of each query and a miss is null; each change is one statement (or one
 * transaction) together with its audit entry.
 */
import type { Row } from 'postgres'
import { newId } from '../rules/id.ts'
import { whyUnusable } from '../rules/key-state.ts'
import type { Actor, AuditEvent, KeyCredential, KeyStore, StoredKey } from '../stores.ts'
import { auditActor, auditColumns } from './audit.ts'
import type { Pool, Query } from './pool.ts'

export interface KeyPools {
  lookups: Pool
  management: Pool
  background: Pool
}

/** Whole Unix seconds as a double: a bigint would arrive as a string. */
const seconds = (sql: Query, column: string) => sql`floor(extract(epoch from ${sql(column)}))::float8`

const stored = (sql: Query) => sql`
  id, user_id, name, key_prefix, rate_limit_rpm, version,
  ${seconds(sql, 'created_at')} as created_at, ${seconds(sql, 'expires_at')} as expires_at,
  ${seconds(sql, 'revoked_at')} as revoked_at, ${seconds(sql, 'last_used_at')} as last_used_at`

const toKey = (row: Row): StoredKey => ({
  id: row.id,
  userId: row.user_id,
  name: row.name,
  keyPrefix: row.key_prefix,
  rateLimitRpm: row.rate_limit_rpm,
  version: row.version,
  createdAt: row.created_at,
  expiresAt: row.expires_at,
  revokedAt: row.revoked_at,
  lastUsedAt: row.last_used_at,
})

/** NUL cannot be in a Postgres text (SQLSTATE 22021), so no id has it: asked for as one that no key has. */
const askable = (id: string) => (id.includes('\0') || id.length > 100 ? '' : id)

const usable = (sql: Query) => sql`revoked_at is null and (expires_at is null or expires_at > now())`

export function createKeyStore(pools: KeyPools, { keysPerUserMax }: { keysPerUserMax: number }): KeyStore {
  return {
    findByHash: (hashes) =>
      pools.lookups.run(async (sql) => {
        const rows = await sql`
          select encode(k.key_hash, 'hex') as hash, k.id, k.user_id, k.rate_limit_rpm, k.version,
            ${seconds(sql, 'k.expires_at')} as expires_at, ${seconds(sql, 'k.revoked_at')} as revoked_at,
            u.deleted_at is not null as owner_deleted, extract(epoch from now())::float8 as now_s
          from api_keys k join users u on u.id = k.user_id
          where k.key_hash = any (${`{${hashes.map((hash) => `"\\\\x${hash}"`).join(',')}}`}::text::bytea[])`
        return rows.map(
          (row): KeyCredential => ({
            hash: row.hash,
            id: row.id,
            userId: row.user_id,
            rateLimitRpm: row.rate_limit_rpm,
            version: row.version,
            expiresAt: row.expires_at,
            revokedAt: row.revoked_at,
            ownerDeleted: row.owner_deleted,
            nowS: row.now_s,
          }),
        )
      }),

    create: (key, actor) =>
      pools.management.run((pool) =>
        pool.begin(async (sql) => {
          // Locks the owner: of two creations at the limit one waits for the other, and a deletion for both.
          const [owner] = await sql`
            select deleted_at is not null as deleted from users where id = ${key.userId} for update`
          if (actor.keyId !== null) {
            // And the caller's key: a revocation either is seen here, or waits until this key is made.
            const [caller] = await sql`
              select ${seconds(sql, 'revoked_at')} as "revokedAt", ${seconds(sql, 'expires_at')} as "expiresAt",
                extract(epoch from clock_timestamp())::float8 as now_s
              from api_keys where id = ${actor.keyId} for share`
            const refusal =
              caller === undefined || owner === undefined
                ? 'unknown_key'
                : whyUnusable(
                    { revokedAt: caller.revokedAt, expiresAt: caller.expiresAt, ownerDeleted: owner.deleted },
                    caller.now_s,
                  )
            if (refusal !== null) return { ok: false as const, reason: 'caller_unusable' as const, refusal }
          }
          if (owner === undefined || owner.deleted)
            return { ok: false as const, reason: 'no_such_user' as const }
          const [row] = await sql`
            with created as (
              insert into api_keys (id, user_id, name, key_hash, key_prefix, rate_limit_rpm, expires_at)
              select ${key.id}, ${key.userId}, ${key.name}, ${key.hash}, ${key.keyPrefix}, ${key.rateLimitRpm},
                to_timestamp(${key.expiresAt}::float8)
              where (select count(*) from api_keys where user_id = ${key.userId} and ${usable(sql)}) < ${keysPerUserMax}
              returning *
            ), ${audited(sql, 'created', 'key.created', actor, { name: key.name, rate_limit_rpm: key.rateLimitRpm, expires_at: key.expiresAt })}
            select ${stored(sql)} from created`
          if (row === undefined) return { ok: false as const, reason: 'limit_reached' as const }
          return { ok: true as const, key: toKey(row) }
        }),
      ),

    get: (id, userId) =>
      pools.management.run(async (sql) => {
        const [row] =
          await sql`select ${stored(sql)} from api_keys where id = ${askable(id)} and user_id = ${userId}`
        return row ? toKey(row) : null
      }),

    list: (userId, { limit, startingAfter, status }) =>
      pools.management.run(async (sql) => {
        const after = startingAfter === undefined ? undefined : askable(startingAfter)
        if (after !== undefined) {
          const [found] = await sql`select from api_keys where id = ${after} and user_id = ${userId}`
          if (found === undefined) return null
        }
        const rows = await sql`
          select ${stored(sql)} from api_keys
          where user_id = ${userId}
            ${after === undefined ? sql`` : sql`and (created_at, id) < (select created_at, id from api_keys where id = ${after})`}
            ${status === 'active' ? sql`and ${usable(sql)}` : sql``}
            ${status === 'revoked' ? sql`and revoked_at is not null` : sql``}
            ${status === 'expired' ? sql`and revoked_at is null and expires_at <= now()` : sql``}
          -- Qualified: the answer's own created_at has whole seconds only.
          order by api_keys.created_at desc, api_keys.id desc
          limit ${limit}`
        return rows.map(toKey)
      }),

    change: (id, userId, { name, rateLimitRpm, expiresAt }, actor) =>
      pools.management.run(async (sql) => {
        const details = { name, rate_limit_rpm: rateLimitRpm, expires_at: expiresAt }
        const [row] = await sql`
          with changed as (
            update api_keys set version = version + 1
              ${name === undefined ? sql`` : sql`, name = ${name}`}
              ${rateLimitRpm === undefined ? sql`` : sql`, rate_limit_rpm = ${rateLimitRpm}`}
              ${expiresAt === undefined ? sql`` : sql`, expires_at = to_timestamp(${expiresAt}::float8)`}
            where id = ${askable(id)} and user_id = ${userId} and ${usable(sql)}
            returning *
          ), ${audited(sql, 'changed', 'key.updated', actor, details)}
          select ${stored(sql)} from changed`
        if (row !== undefined) return { ok: true, key: toKey(row) }
        const [found] = await sql`select from api_keys where id = ${askable(id)} and user_id = ${userId}`
        return { ok: false, reason: found === undefined ? 'absent' : 'not_active' }
      }),

    revoke: (id, userId, actor) =>
      pools.management.run(async (sql) => {
        const own = userId === null ? sql`` : sql`and user_id = ${userId}`
        const [row] = await sql`
          with revoked as (
            update api_keys set revoked_at = now(), version = version + 1
            where id = ${askable(id)} ${own} and revoked_at is null
            returning *
          ), ${audited(sql, 'revoked', 'key.revoked', actor, null)}
          select ${stored(sql)} from revoked`
        if (row !== undefined) return toKey(row)
        const [found] = await sql`select ${stored(sql)} from api_keys where id = ${askable(id)} ${own}`
        return found ? toKey(found) : null
      }),

    touch: (uses) =>
      pools.background.run(async (sql) => {
        // In the order of ids, so that two instances that write the same rows cannot block each other.
        const sorted = [...uses].sort(([a], [b]) => (a < b ? -1 : 1))
        const rows = sorted.map(([id, at]) => ({ id, at }))
        await sql`
          update api_keys k set last_used_at = to_timestamp(u.at)
          from json_to_recordset(${JSON.stringify(rows)}::text::json) as u (id text, at float8)
          where k.id = u.id and (k.last_used_at is null or k.last_used_at < to_timestamp(u.at))`
      }),
  }
}

/** `audited as (…)`: the entry of each row that the statement's `source` part changed. */
function audited(
  sql: Query,
  source: 'created' | 'changed' | 'revoked',
  event: AuditEvent,
  actor: Actor,
  details: Record<string, unknown> | null,
) {
  return sql`audited as (
    insert into audit_log ${auditColumns(sql)}
    select ${newId('aud_')}, ${actor.requestId}, ${event}, id, user_id, ${auditActor(sql, actor)},
      ${details === null ? null : JSON.stringify(details)}::text::jsonb
    from ${sql(source)}
  )`
}
