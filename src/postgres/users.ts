/** Users in Postgres. Deletion is soft, and makes every instance read the user's keys again. */
import type { Row } from 'postgres'
import { newId } from '../rules/id.ts'
import type { AuditEvent, Publish, User, UserStore } from '../stores.ts'
import { auditEntry } from './audit.ts'
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

export function createUserStore(operator: Pool, publish: Publish): UserStore {
  const find = async (sql: Query, id: string) => {
    const [row] = await sql`select ${columns(sql)} from users where id = ${id}`
    return row ? toUser(row) : null
  }
  return {
    create: (user, actor) =>
      operator.run(async (sql) => {
        const [row] = await sql`
          with made as (
            insert into users (id, name) values (${user.id}, ${user.name}) returning *
          ), audited as (
            insert into audit_log (id, request_id, event, user_id, user_agent)
            select ${newId('aud_')}, ${actor.requestId}, ${'user.created' satisfies AuditEvent}, id, ${actor.userAgent}
            from made
          )
          select ${columns(sql)} from made`
        return toUser(row!)
      }),

    list: () =>
      operator.run(async (sql) =>
        (await sql`select ${columns(sql)} from users order by users.created_at, users.id`).map(toUser),
      ),

    async remove(id, actor) {
      let published: Promise<void> | undefined
      const user = await operator.run(async (sql) => {
        const entry = auditEntry(sql, 'user.deleted', actor, { user_id: id })
        const keys = await sql`select key_id, key_version from delete_user(${id}, ${entry})`
        const versions = keys.map((key) => ({ keyId: key.key_id, version: key.key_version }))
        if (versions.length > 0) published = publish(versions)
        return find(sql, id)
      })
      await published
      return user
    },
  }
}
