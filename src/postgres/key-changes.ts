/**
 * The changes of API keys in Postgres. Each is one statement that also writes the audit entry, and
 * each but a creation resolves once every instance sees it.
 */
import type { Row } from 'postgres'
import { idOrNone } from '../rules/id.ts'
import type { MintedKey } from '../rules/new-key.ts'
import type { Actor, KeyStore, KeyVersion, Publish } from '../stores.ts'
import { auditEntry } from './audit.ts'
import { safeKeyId, stored, toKey } from './key-rows.ts'
import type { Pool, Query } from './pool.ts'
import { runPublished } from './published.ts'

/** A row to insert, as an argument of a database function. */
const newRow = (sql: Query, minted: MintedKey, more: Record<string, unknown> = {}) =>
  sql`json_populate_record(null::api_keys, ${JSON.stringify({
    id: minted.id,
    key_hash: `\\x${minted.hash.toString('hex')}`,
    hash_secret_id: minted.hashSecretId,
    key_prefix: minted.displayPrefix,
    ...more,
  })}::text::json)`

const versionOf = (row: Row): KeyVersion => ({ keyId: row.id, version: row.version })

export interface KeyChangesOptions {
  keysPerUserMax: number
  publish: Publish
}

export function createKeyChanges(
  pool: Pool,
  { keysPerUserMax, publish }: KeyChangesOptions,
): Pick<KeyStore, 'create' | 'change' | 'rotate' | 'revoke'> {
  /** Publishes the version that the work commits. */
  const change = <T>(
    userId: string | null,
    actor: Actor,
    work: (sql: Query, committed: (changed: KeyVersion) => void) => Promise<T>,
  ) =>
    runPublished({ pool, lane: actor.operator ?? userId, publish }, (sql, committed) =>
      work(sql, (changed) => committed([changed])),
    )

  return {
    create: (key, actor) =>
      pool.change(async (sql) => {
        const userId = idOrNone('usr_', key.userId)
        const entry = auditEntry(sql, 'key.created', actor, {
          key_id: key.id,
          user_id: userId,
          details: { name: key.name, rate_limit_rpm: key.rateLimitRpm, expires_at: key.expiresAt },
        })
        const row = newRow(sql, key, {
          user_id: userId,
          name: key.name,
          rate_limit_rpm: key.rateLimitRpm,
          expires_at: key.expiresAt === null ? null : new Date(key.expiresAt * 1000),
        })
        const [made] = await sql`
          select outcome, ${stored(sql)}
          from create_key(caller_id => ${actor.keyId}::text,
            new_key => ${row}, usable_max => ${keysPerUserMax}::int, entry => ${entry}) as made
          cross join lateral (select (made.stored).*) as key`
        const { outcome, now_s } = made!
        if (outcome === 'created') return { ok: true, key: toKey(made!) }
        if (outcome === 'limit_reached' || outcome === 'no_such_user') return { ok: false, reason: outcome }
        if (outcome === 'expires_in_past') return { ok: false, reason: outcome, nowS: now_s }
        return { ok: false, reason: 'caller_unusable', denial: outcome }
      }, actor.operator ?? key.userId),

    change: (id, userId, { name, rateLimitRpm, expiresAt }, actor) =>
      change(userId, actor, async (sql, committed) => {
        const details = { name, rate_limit_rpm: rateLimitRpm, expires_at: expiresAt }
        const entry = auditEntry(sql, 'key.updated', actor, {
          key_id: safeKeyId(id),
          user_id: userId,
          details,
        })
        const [row] = await sql`
          select outcome, ${stored(sql)}
          from change_key(caller_id => ${actor.keyId}::text, key_id => ${safeKeyId(id)}, owner_id => ${userId}::text,
            new_name => ${name ?? null}::text, new_rate_limit_rpm => ${rateLimitRpm ?? null}::int,
            sets_expiry => ${expiresAt !== undefined}, new_expires_at => to_timestamp(${expiresAt ?? null}::float8),
            entry => ${entry}) as changed
          cross join lateral (select (changed.stored).*) as key`
        const { outcome, now_s } = row!
        if (outcome === 'changed') {
          committed(versionOf(row!))
          return { ok: true, key: toKey(row!) }
        }
        if (outcome === 'absent' || outcome === 'not_active') return { ok: false, reason: outcome }
        if (outcome === 'expires_in_past') return { ok: false, reason: outcome, nowS: now_s }
        return { ok: false, reason: 'caller_unusable', denial: outcome }
      }),

    rotate: (id, userId, { successor, graceS, onStored }, actor) =>
      change(userId, actor, async (sql, committed) => {
        const entry = auditEntry(sql, 'key.rotated', actor, { key_id: safeKeyId(id), user_id: userId })
        const [row] = await sql`
          select outcome, (made.rotated).version as rotated_version,
            (made.rotated).successor_id,
            (made.rotated).revoked_at is null
              and coalesce((made.rotated).expires_at > clock_timestamp(), true) as still_active,
            ${stored(sql)}
          from rotate_key(caller_id => ${actor.keyId}::text, key_id => ${safeKeyId(id)}, owner_id => ${userId}::text,
            successor => ${newRow(sql, successor)}, grace_s => ${graceS}::int, usable_max => ${keysPerUserMax}::int,
            entry => ${entry}) as made
          cross join lateral (select (made.stored).*) as key`
        const { outcome, rotated_version, successor_id, still_active } = row!
        // A repeated rotation too: the first response may have been lost before every instance saw
        // the change.
        if (outcome === 'rotated' || outcome === 'already_rotated')
          committed({ keyId: id, version: rotated_version })
        if (outcome === 'rotated') {
          const key = toKey(row!)
          onStored?.(key)
          return { ok: true, key }
        }
        if (outcome === 'already_rotated') return { ok: false, reason: outcome, successorId: successor_id }
        // The function refuses an active key only if its owner is deleted.
        if (outcome === 'not_active')
          return { ok: false, reason: still_active ? 'owner_deleted' : 'not_active' }
        if (outcome === 'absent' || outcome === 'limit_reached') return { ok: false, reason: outcome }
        return { ok: false, reason: 'caller_unusable', denial: outcome }
      }),

    revoke: (id, userId, actor, details) =>
      change(userId, actor, async (sql, committed) => {
        const about = { key_id: safeKeyId(id), user_id: userId, ...(details && { details }) }
        const entry = auditEntry(sql, 'key.revoked', actor, about)
        const [row] = await sql`
          select outcome, ${stored(sql)}
          from revoke_key(caller_id => ${actor.keyId}::text, key_id => ${safeKeyId(id)}, owner_id => ${userId}::text,
            entry => ${entry}) as revoked
          cross join lateral (select (revoked.stored).*) as key`
        const { outcome, id: revokedId } = row!
        // `revoked` without a row is a denial: the caller's own key is revoked.
        if (outcome === 'revoked' && revokedId !== null) {
          // Even if it was revoked before: see the repeated rotation.
          committed(versionOf(row!))
          return { ok: true, key: toKey(row!) }
        }
        if (outcome === 'absent') return { ok: false, reason: outcome }
        return { ok: false, reason: 'caller_unusable', denial: outcome }
      }),
  }
}
