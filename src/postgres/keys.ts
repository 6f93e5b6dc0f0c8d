/**
 * API keys in Postgres. Ownership is part of each query, and a miss is null. key-changes.ts has the
 * changes.
 */
import type { KeyCredential, KeyStore } from '../stores.ts'
import { keysBySecret } from './hash-secrets.ts'
import { createKeyChanges, type KeyChangesOptions } from './key-changes.ts'
import { expiry, safeKeyId, seconds, stored, toKey, usable } from './key-rows.ts'
import type { Pool, Query } from './pool.ts'

interface KeyPools {
  lookups: Pool
  management: Pool
  background: Pool
  /** For slow queries of the command line. */
  operator: Pool
}

const ownedBy = (sql: Query, userId: string | null) =>
  userId === null ? sql`true` : sql`user_id = ${userId}`

const byteas = (hashes: string[]) => `{${hashes.map((hash) => `"\\\\x${hash}"`).join(',')}}`

const expired = (sql: Query) => sql`revoked_at is null and coalesce(expires_at, 'infinity') <= now()`

/** Part of each statement, because a pooler may send every statement to another server. */
const serverRole = (sql: Query) => sql`(
  select case
    when pg_is_in_recovery() then 'standby'
    when current_setting('transaction_read_only')::boolean then 'read_only'
    else 'primary'
  end)`

export function createKeyStore(pools: KeyPools, options: KeyChangesOptions): KeyStore {
  /**
   * Each user and each operator has a lane, so a flood from one of them holds up no one else.
   */
  const manage = <T>(lane: string | null | undefined, work: (sql: Query) => Promise<T>) =>
    pools.management.run(work, lane ?? undefined)

  return {
    ...createKeyChanges(pools.management, options),

    /**
     * An unknown hash reads the next key in the index, which is then dropped. It takes the same
     * path through the index, reads rows of the same tables and returns as many bytes as a known
     * one, so timing does not reveal whether a key exists. The owner is a subselect: with a join,
     * the planner would have to guess the batch size and would scan all users.
     */
    findByHash: (hashes) =>
      pools.lookups.run(async (sql, noteReadOnly) => {
        const rows = await sql`
          select encode(k.key_hash, 'hex') as hash, k.id, k.user_id, k.rate_limit_rpm, k.version,
            ${expiry(sql, 'k.expires_at')} as expires_at, ${seconds(sql, 'k.revoked_at')} as revoked_at,
            (select u.deleted_at is not null from users u where u.id = k.user_id) as owner_deleted,
            (select extract(epoch from now())::float8) as now_s, ${serverRole(sql)} as role,
            (select key_server()) as server
          from unnest(${byteas(hashes)}::text::bytea[]) as asked (hash)
          left join lateral (
            select * from api_keys where key_hash >= asked.hash order by key_hash limit 1
          ) k on true`
        // Keep each key once: it may also have been returned as the neighbour of an unknown hash.
        const asked = new Set(hashes)
        const found = rows
          .map(
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
          .filter(({ hash }) => asked.delete(hash))
        const role = rows[0]?.role ?? 'primary'
        // Look-ups write nothing, and before Postgres 14 a connection does not report this by itself.
        if (role !== 'primary') noteReadOnly()
        return { found, role, server: rows[0]?.server ?? '' }
      }),

    get: (id, userId, lane) =>
      manage(lane ?? userId, async (sql) => {
        const [row] =
          await sql`select ${stored(sql)} from api_keys where id = ${safeKeyId(id)} and ${ownedBy(sql, userId)}`
        return row ? toKey(row) : null
      }),

    getByHash: (hashes, lane) =>
      manage(lane, async (sql) => {
        const [row] = await sql`
          select ${stored(sql)} from api_keys
          where key_hash = any (${byteas(hashes)}::text::bytea[])`
        return row ? toKey(row) : null
      }),

    list: (userId, { limit, startingAfter, status, displayPrefix }, lane) =>
      manage(lane ?? userId, async (sql) => {
        const after = startingAfter === undefined ? undefined : safeKeyId(startingAfter)
        if (after !== undefined) {
          const [found] = await sql`select from api_keys where id = ${after} and ${ownedBy(sql, userId)}`
          if (found === undefined) return null
        }
        const rows = await sql`
          select ${stored(sql)} from api_keys
          where ${ownedBy(sql, userId)}
            ${displayPrefix === undefined ? sql`` : sql`and key_prefix = ${displayPrefix}`}
            ${after === undefined ? sql`` : sql`and (created_at, id) < (select created_at, id from api_keys where id = ${after})`}
            ${status === 'active' ? sql`and ${usable(sql)}` : sql``}
            ${status === 'revoked' ? sql`and revoked_at is not null` : sql``}
            ${status === 'expired' ? sql`and ${expired(sql)}` : sql``}
          -- Qualified, because the output column created_at has whole seconds only.
          order by api_keys.created_at desc, api_keys.id desc
          limit ${limit}`
        return rows.map(toKey)
      }),

    rank: (counts, { limit, lane }) =>
      manage(lane, async (sql) => {
        const rows = await sql`
          select ranked.*, u.name as user_name
          from (
            select c.id, c.used, k.name, k.key_prefix, k.user_id, k.rate_limit_rpm,
              row_number() over (order by c.used desc, c.id) as by_used,
              row_number() over (order by c.used / k.rate_limit_rpm desc nulls last, c.id) as by_share
            from json_to_recordset(${JSON.stringify(counts.map(({ keyId, count }) => ({ id: keyId, used: count })))}::text::json)
              as c (id text, used float8)
            left join api_keys k on k.id = c.id
          ) as ranked
          left join users u on u.id = ranked.user_id
          where by_used <= ${limit} or by_share <= ${limit}`
        return rows.map((row) => ({
          id: row.id,
          used: row.used,
          name: row.name,
          displayPrefix: row.key_prefix,
          userId: row.user_id,
          userName: row.user_name,
          rateLimitRpm: row.rate_limit_rpm,
        }))
      }),

    touch: (uses, { skipsLocked = false } = {}) =>
      pools.background.run(async (sql) => {
        const rows = JSON.stringify(
          uses.map(({ key, atS }) => ({
            id: key.id,
            at: atS,
            ...(key.refreshing && {
              user_id: key.userId,
              rate_limit_rpm: key.rateLimitRpm,
              expires_at: key.expiresAt,
              version: key.version,
            }),
          })),
        )
        // Not worth a flush of the WAL: a server that crashes loses less than a second of them.
        const lazily = sql`set_config('synchronous_commit', 'off', true)`
        const from = sql`extract(epoch from now())::float8 as now_s, key_server() as server`
        if (!skipsLocked) {
          const [row] = await sql`
            select ${lazily}, ${from}, touch_and_confirm_keys(${rows}::text::json) as confirmed`
          return { confirmed: row!.confirmed, skipped: [], nowS: row!.now_s, server: row!.server }
        }
        // More work than the usual statement (sql/postgres/008.do.last-used.sql).
        const [row] = await sql`
          with used as (
            select use->>'id' as id, use from json_array_elements(${rows}::text::json) as use
          ), free as (
            select id from api_keys where id in (select id from used) order by id for no key update skip locked
          )
          select ${lazily}, ${from},
            touch_and_confirm_keys(
              (select coalesce(json_agg(use), '[]') from used where id in (select id from free))
            ) as confirmed,
            (
              select coalesce(json_agg(id), '[]') from api_keys
              where id in (select id from used) and id not in (select id from free)
            ) as skipped`
        return { confirmed: row!.confirmed, skipped: row!.skipped, nowS: row!.now_s, server: row!.server }
      }),

    rehash: (hashes, secretId) =>
      pools.background.run(async (sql) => {
        await sql`select rehash_keys(${JSON.stringify(hashes)}::text::json, ${secretId})`
      }),

    countBySecret: () => pools.operator.run(keysBySecret),
  }
}
