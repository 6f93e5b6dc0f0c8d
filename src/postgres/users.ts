/** Users in Postgres. Deletion is soft, and makes every instance read the user's keys again. */
import type { Row } from 'postgres'
import { idOrNone } from '../rules/id.ts'
import type { ExternalIdTaken, Operator, Publish, User, UserStore } from '../stores.ts'
import { auditEntry, audited } from './audit.ts'
import { seconds } from './key-rows.ts'
import type { Pool, Query } from './pool.ts'
import { runPublished } from './published.ts'

const columns = (sql: Query) => sql`
  id, name, external_id, ${seconds(sql, 'created_at')} as created_at, ${seconds(sql, 'deleted_at')} as deleted_at`

const toUser = (row: Row): User => ({
  id: row.id,
  name: row.name,
  external_id: row.external_id,
  created_at: row.created_at,
  deleted_at: row.deleted_at,
})

const safeUserId = (id: string) => idOrNone('usr_', id)

const taken: ExternalIdTaken = { ok: false, reason: 'external_id_taken' }
const isTaken = (error: unknown) =>
  (error as { constraint_name?: string }).constraint_name === 'external_id_is_unique'

interface UserPools {
  management: Pool
  /** For changes of all keys of a user, who may have many. */
  operator: Pool
}

export function createUserStore({ management: pool, operator }: UserPools, publish: Publish): UserStore {
  const inLane = <T>(lane: Operator | null | undefined, work: (sql: Query) => Promise<T>) =>
    pool.run(work, lane ?? undefined)

  async function find(sql: Query, id: string): Promise<User | null> {
    const [row] = await sql`select ${columns(sql)} from users where id = ${safeUserId(id)}`
    return row ? toUser(row) : null
  }

  /**
   * Null if there is no such user. A change of many keys may take half a minute, so this reads the user
   * first: if there is none, or Postgres does not answer, that shows within a second or so.
   */
  async function changeKeys<T>(
    id: string,
    lane: Operator | null,
    work: (sql: Query, committed: (rows: readonly Row[]) => void) => Promise<T>,
  ): Promise<T | null> {
    if ((await inLane(lane, (sql) => find(sql, id))) === null) return null
    return runPublished({ pool: operator, lane, publish }, (sql, committed) =>
      work(sql, (rows) => committed(rows.map((row) => ({ keyId: row.key_id, version: row.key_version })))),
    )
  }

  return {
    create: ({ id, name, externalId = null }, actor) =>
      pool.change(async (sql) => {
        const details = { name, external_id: externalId }
        const entry = auditEntry(sql, 'user.created', actor, { user_id: id, details })
        const [row] = await sql`
          with made as (
            insert into users (id, name, external_id) values (${id}, ${name}, ${externalId})
            on conflict on constraint external_id_is_unique do nothing returning *
          ), entered as (${audited(sql, 'made', entry)})
          select ${columns(sql)} from made`
        return row ? { ok: true, user: toUser(row) } : taken
      }, actor.operator ?? undefined),

    get: (id, lane) => inLane(lane, (sql) => find(sql, id)),

    list: ({ limit, startingAfter, externalId, externalIdHash }, lane) =>
      inLane(lane, async (sql) => {
        const after = startingAfter === undefined ? undefined : safeUserId(startingAfter)
        if (after !== undefined && (await find(sql, after)) === null) return null
        const rows = await sql`
          select ${columns(sql)} from users
          where true
            ${externalId === undefined ? sql`` : sql`and external_id = ${externalId}`}
            ${externalIdHash === undefined ? sql`` : sql`and encode(sha256(convert_to(external_id, 'UTF8')), 'hex') = ${externalIdHash}`}
            ${after === undefined ? sql`` : sql`and (created_at, id) < (select created_at, id from users where id = ${after})`}
          -- Qualified, because the output column created_at has whole seconds only.
          order by users.created_at desc, users.id desc
          limit ${limit}`
        return rows.map(toUser)
      }),

    change: (id, { name, externalId }, actor) =>
      pool.change(async (sql) => {
        const details = { name, external_id: externalId }
        const entry = auditEntry(sql, 'user.updated', actor, { user_id: safeUserId(id), details })
        try {
          const [row] = await sql`
            with changed as (
              update users set
                name = coalesce(${name ?? null}::text, name),
                external_id = case when ${externalId !== undefined} then ${externalId ?? null}::text else external_id end
              where id = ${safeUserId(id)} and not exists (
                -- By the constraint alone, two users who swap their external ids wait for each other.
                select from users as other where other.external_id = ${externalId ?? null}::text and other.id <> users.id
              ) returning *
            ), entered as (${audited(sql, 'changed', entry)})
            select ${columns(sql)} from changed`
          if (row) return { ok: true, user: toUser(row) }
          return (await find(sql, id)) ? taken : { ok: false, reason: 'absent' }
        } catch (error) {
          if (isTaken(error)) return taken
          throw error
        }
      }, actor.operator ?? undefined),

    revokeKeys: (id, actor) =>
      changeKeys(id, actor.operator, async (sql, committed) => {
        const entry = auditEntry(sql, 'user.keys_revoked', actor, { user_id: safeUserId(id) })
        const keys = await sql`
          select key_id, key_version, is_new from revoke_keys_of_user(${safeUserId(id)}, ${entry})`
        committed(keys)
        return keys.filter(({ is_new }) => is_new).length
      }),

    remove: (id, actor) =>
      changeKeys(id, actor.operator, async (sql, committed) => {
        const entry = auditEntry(sql, 'user.deleted', actor, { user_id: safeUserId(id) })
        committed(await sql`select key_id, key_version from delete_user(${safeUserId(id)}, ${entry})`)
        return find(sql, id)
      }),
  }
}
