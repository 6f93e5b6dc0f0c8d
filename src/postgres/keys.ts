/**
 * API keys in Postgres. Ownership is part of each query, and a miss is null. Each change is one
 * statement that also writes the audit entry.
 */
import type { Row } from 'postgres'
import { idOrNone } from '../rules/id.ts'
import {
  type Actor,
  type KeyCredential,
  type KeyStore,
  type Publish,
  type StoredKey,
  Unavailable,
} from '../stores.ts'
import { auditEntry } from './audit.ts'
import type { Pool, Query } from './pool.ts'

export interface KeyPools {
  lookups: Pool
  management: Pool
  background: Pool
  /** For slow queries of the command line. */
  operator: Pool
}

/** Whole Unix seconds as a double: a bigint would arrive as a string. */
const seconds = (sql: Query, column: string) => sql`floor(extract(epoch from ${sql(column)}))::float8`

/** The database's clock, which decides whether an expiry is in the future. */
const nowS = (sql: Query) => sql`extract(epoch from clock_timestamp())::float8 as now_s`

const stored = (sql: Query) => sql`
  id, user_id, name, key_prefix, rate_limit_rpm, version,
  ${seconds(sql, 'created_at')} as created_at, ${seconds(sql, 'expires_at')} as expires_at,
  ${seconds(sql, 'revoked_at')} as revoked_at, ${seconds(sql, 'last_used_at')} as last_used_at`

const toKey = (row: Row): StoredKey => ({
  id: row.id,
  userId: row.user_id,
  name: row.name,
  displayPrefix: row.key_prefix,
  rateLimitRpm: row.rate_limit_rpm,
  version: row.version,
  createdAt: row.created_at,
  expiresAt: row.expires_at,
  revokedAt: row.revoked_at,
  lastUsedAt: row.last_used_at,
})

const safeId = (id: string) => idOrNone('apk_', id)

type Committed = { ok: true; key: StoredKey }

const ownedBy = (sql: Query, userId: string | null) =>
  userId === null ? sql`true` : sql`user_id = ${userId}`

const byteas = (hashes: string[]) => `{${hashes.map((hash) => `"\\\\x${hash}"`).join(',')}}`

/** Uses the same expression as the index api_keys_not_revoked. */
const usable = (sql: Query) => sql`revoked_at is null and coalesce(expires_at, 'infinity') > now()`
const expired = (sql: Query) => sql`revoked_at is null and coalesce(expires_at, 'infinity') <= now()`

export interface KeyStoreOptions {
  keysPerUserMax: number
  publish: Publish
}

export function createKeyStore(pools: KeyPools, { keysPerUserMax, publish }: KeyStoreOptions): KeyStore {
  /** Each user has their own lane, and each operator, so a flood of requests keeps nobody else waiting. */
  const manage = <T>(lane: string | null | undefined, work: (sql: Query) => Promise<T>) =>
    pools.management.run(work, lane ?? undefined)

  /**
   * Runs a change and waits until it is published. The work itself reports the committed row, so
   * that a change that came too late for its request is published too. The connection is free
   * during that wait.
   */
  async function change<T>(
    userId: string | null,
    actor: Actor,
    work: (sql: Query, committed: (row: Row) => Committed) => Promise<T>,
  ): Promise<T> {
    let published: Promise<void> | undefined
    const committed = (row: Row): Committed => {
      const key = toKey(row)
      published = publish([{ keyId: key.id, version: key.version }])
      return { ok: true, key }
    }
    const answer = await manage(actor.operator ?? userId, (sql) => work(sql, committed))
    await published
    return answer
  }

  return {
    /**
     * An unknown hash reads the next key in the index, which is then dropped. It takes the same
     * path through the index, reads rows of the same tables and returns as many bytes as a known
     * one, so timing does not reveal whether a key exists. The owner is a subselect: with a join,
     * the planner would have to guess the batch size and would scan all users.
     */
    findByHash: (hashes) =>
      pools.lookups.run(async (sql) => {
        const rows = await sql`
          select encode(k.key_hash, 'hex') as hash, k.id, k.user_id, k.rate_limit_rpm, k.version,
            ${seconds(sql, 'k.expires_at')} as expires_at, ${seconds(sql, 'k.revoked_at')} as revoked_at,
            (select u.deleted_at is not null from users u where u.id = k.user_id) as owner_deleted,
            k.hash_secret_id, extract(epoch from now())::float8 as now_s
          from unnest(${byteas(hashes)}::text::bytea[]) as asked (hash)
          cross join lateral (
            select * from api_keys where key_hash >= asked.hash order by key_hash limit 1
          ) k`
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
              hashSecretId: row.hash_secret_id,
              nowS: row.now_s,
            }),
          )
          .filter(({ hash }) => asked.delete(hash))
        if (asked.size > 0 && pools.lookups.isReadOnly)
          throw new Unavailable(
            'Postgres takes no writes: unknown keys may have been created on another server',
          )
        return found
      }),

    create: (key, actor) =>
      manage(actor.operator ?? key.userId, async (sql) => {
        const userId = idOrNone('usr_', key.userId)
        const entry = auditEntry(sql, 'key.created', actor, {
          key_id: key.id,
          user_id: userId,
          details: { name: key.name, rate_limit_rpm: key.rateLimitRpm, expires_at: key.expiresAt },
        })
        const row = JSON.stringify({
          id: key.id,
          user_id: userId,
          name: key.name,
          key_hash: `\\x${key.hash.toString('hex')}`,
          hash_secret_id: key.hashSecretId,
          key_prefix: key.displayPrefix,
          rate_limit_rpm: key.rateLimitRpm,
          expires_at: key.expiresAt === null ? null : new Date(key.expiresAt * 1000),
        })
        const [made] = await sql`
          select outcome, ${nowS(sql)}, ${stored(sql)}
          from create_key(caller_id => ${actor.keyId}::text,
            new_key => json_populate_record(null::api_keys, ${row}::text::json), usable_max => ${keysPerUserMax}::int,
            entry => ${entry}) as made
          cross join lateral (select (made.stored).*) as key`
        const { outcome, now_s } = made!
        if (outcome === 'created') return { ok: true, key: toKey(made!) }
        if (outcome === 'limit_reached' || outcome === 'no_such_user') return { ok: false, reason: outcome }
        if (outcome === 'expires_in_past') return { ok: false, reason: outcome, nowS: now_s }
        return { ok: false, reason: 'caller_unusable', denial: outcome }
      }),

    get: (id, userId, lane) =>
      manage(lane ?? userId, async (sql) => {
        const [row] =
          await sql`select ${stored(sql)} from api_keys where id = ${safeId(id)} and ${ownedBy(sql, userId)}`
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
        const after = startingAfter === undefined ? undefined : safeId(startingAfter)
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

    change: (id, userId, { name, rateLimitRpm, expiresAt }, actor) =>
      change(userId, actor, async (sql, committed) => {
        const details = { name, rate_limit_rpm: rateLimitRpm, expires_at: expiresAt }
        const entry = auditEntry(sql, 'key.updated', actor, { key_id: safeId(id), user_id: userId, details })
        const [row] = await sql`
          select outcome, ${nowS(sql)}, ${stored(sql)}
          from change_key(caller_id => ${actor.keyId}::text, key_id => ${safeId(id)}, owner_id => ${userId}::text,
            new_name => ${name ?? null}::text, new_rate_limit_rpm => ${rateLimitRpm ?? null}::int,
            sets_expiry => ${expiresAt !== undefined}, new_expires_at => to_timestamp(${expiresAt ?? null}::float8),
            entry => ${entry}) as changed
          cross join lateral (select (changed.stored).*) as key`
        const { outcome, now_s } = row!
        if (outcome === 'changed') return committed(row!)
        if (outcome === 'absent' || outcome === 'not_active') return { ok: false, reason: outcome }
        if (outcome === 'expires_in_past') return { ok: false, reason: outcome, nowS: now_s }
        return { ok: false, reason: 'caller_unusable', denial: outcome }
      }),

    revoke: (id, userId, actor) =>
      change(userId, actor, async (sql, committed) => {
        const entry = auditEntry(sql, 'key.revoked', actor, { key_id: safeId(id), user_id: userId })
        const [row] = await sql`
          select outcome, ${stored(sql)}
          from revoke_key(caller_id => ${actor.keyId}::text, key_id => ${safeId(id)}, owner_id => ${userId}::text,
            entry => ${entry}) as revoked
          cross join lateral (select (revoked.stored).*) as key`
        const { outcome } = row!
        // Even if it was revoked before: that response may have been lost before every instance saw
        // the change.
        if (outcome === 'revoked') return committed(row!)
        if (outcome === 'absent') return { ok: false, reason: outcome }
        return { ok: false, reason: 'caller_unusable', denial: outcome }
      }),

    touch: (uses) =>
      pools.background.run(async (sql) => {
        const rows = [...uses].map(([id, at]) => ({ id, at }))
        await sql`select touch_keys(${JSON.stringify(rows)}::text::json)`
      }),

    rehash: (hashes, secretId) =>
      pools.background.run(async (sql) => {
        await sql`select rehash_keys(${JSON.stringify(hashes)}::text::json, ${secretId})`
      }),

    countBySecret: () =>
      pools.operator.run(async (sql) => {
        const rows = await sql`
          select hash_secret_id as secret_id, count(*)::float8 as keys
          from api_keys join users on users.id = user_id
          where ${usable(sql)} and deleted_at is null
          group by 1`
        return new Map(rows.map(({ secret_id, keys }) => [secret_id, keys]))
      }),
  }
}
