/** Users in Postgres. Deleting one is soft, and makes every instance read the user's keys again. */
import type { Row } from 'postgres'
import { newId } from '../rules/id.ts'
import type { Actor, AuditEvent, User, UserStore } from '../stores.ts'
import { auditActor, auditColumns } from './audit.ts'
import type { Pool, Query } from './pool.ts'

const columns = (sql: Query) => sql`
  id, name, floor(extract(epoch from created_at))::float8 as created_at,
  floor(extract(epoch from deleted_at))::float8 as deleted_at`

const toUser = (row: Row): User => ({
  id: row.id,
  name: row.name,
  created_at: row.created_at,
  deleted_at: row.deleted_at,
})

/** A user may have many keys: this one statement may take longer than a request's. */
const removeTimeoutMs = 30_000

export function createUserStore(management: Pool): UserStore {
  return {
    create: (user, actor) =>
      management.run(async (sql) => {
        const [row] = await sql`
          with changed as (
            insert into users (id, name) values (${user.id}, ${user.name}) returning *
          ), ${audited(sql, 'user.created', actor)}
          select ${columns(sql)} from changed`
        return toUser(row!)
      }),

    list: () =>
      management.run(async (sql) =>
        (await sql`select ${columns(sql)} from users order by users.created_at, users.id`).map(toUser),
      ),

    remove: (id, actor) =>
      management.run(
        (pool) =>
          pool.begin(async (sql) => {
            await sql`set local statement_timeout = ${sql.unsafe(String(removeTimeoutMs))}`
            const [row] = await sql`
              with changed as (
                update users set deleted_at = now() where id = ${id} and deleted_at is null returning *
              ), ${audited(sql, 'user.deleted', actor)}
              select ${columns(sql)} from changed`
            const [user] = row ? [row] : await sql`select ${columns(sql)} from users where id = ${id}`
            if (user === undefined) return null
            // Also when deleted before: that deletion may not have reached every instance.
            const keys = await sql`
              update api_keys set version = version + 1 where user_id = ${id} and revoked_at is null
              returning id, version`
            return {
              user: toUser(user),
              versions: keys.map((key) => ({ keyId: key.id as string, version: key.version as number })),
            }
          }),
        removeTimeoutMs,
      ),
  }
}

function audited(sql: Query, event: AuditEvent, actor: Actor) {
  return sql`audited as (
    insert into audit_log ${auditColumns(sql)}
    select ${newId('aud_')}, ${actor.requestId}, ${event}, null, id, ${auditActor(sql, actor)}, null from changed
  )`
}
