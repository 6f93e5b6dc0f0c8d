/** How a key is read from its row. */
import type { Row } from 'postgres'
import { idOrNone } from '../rules/id.ts'
import { keyState } from '../rules/key-state.ts'
import type { StoredKey } from '../stores.ts'
import type { Query } from './pool.ts'

/** Whole Unix seconds as a double: a bigint would arrive as a string. */
export const seconds = (sql: Query, column: string) => sql`floor(extract(epoch from ${sql(column)}))::float8`

/** An `update` made by hand may set 'infinity', which is no expiry, or '-infinity', which is in the past. */
export const expiry = (sql: Query, column: string) => sql`
  floor(extract(epoch from
    case when ${sql(column)} < 'epoch' then 'epoch' else nullif(${sql(column)}, 'infinity') end
  ))::float8`

/** Without the owner's part in it. Uses the same expression as the index api_keys_not_revoked. */
export const usable = (sql: Query) => sql`revoked_at is null and coalesce(expires_at, 'infinity') > now()`

export const stored = (sql: Query) => sql`
  id, user_id, name, key_prefix, rate_limit_rpm, version,
  ${seconds(sql, 'created_at')} as created_at, ${expiry(sql, 'expires_at')} as expires_at,
  ${seconds(sql, 'revoked_at')} as revoked_at, ${seconds(sql, 'last_used_at')} as last_used_at,
  extract(epoch from clock_timestamp())::float8 as now_s`

export const toKey = (row: Row): StoredKey => ({
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
  state: keyState({ revokedAt: row.revoked_at, expiresAt: row.expires_at }, row.now_s),
})

export const safeKeyId = (id: string) => idOrNone('apk_', id)
