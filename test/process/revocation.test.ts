// A revocation that was answered is in the database, whatever else is going on.
import postgres from 'postgres'
import t from 'tap'
import { makeKey, makeUser, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

t.test(
  'a revocation that was answered is in Postgres, however many keys are made and listed meanwhile',
  async (t) => {
    const services = await useServices(t)
    const a = await startInstance(t, services)
    const user = await makeUser(a)
    const { token } = await makeKey(a, { userId: user.id })
    const answers = new Map<string, number>()
    const revoked: string[] = []
    const ask = async (method: string, path: string, json?: object) => {
      const answer = await a.ask(method, path, { token, ...(json && { json }) })
      const kind = `${method} ${answer.status}`
      answers.set(kind, (answers.get(kind) ?? 0) + 1)
      return answer
    }
    const work = async () => {
      for (let i = 0; i < 15; i++) {
        const { status, body } = await ask('POST', '/v1/keys', { name: 'short-lived' })
        if (status !== 201) continue
        await ask('GET', '/v1/keys?limit=1')
        const { status: gone } = await ask('DELETE', `/v1/keys/${body.id}`)
        if (gone === 200) revoked.push(body.id)
      }
    }
    await Promise.all(Array.from({ length: 12 }, work))
    t.strictSame(Object.fromEntries(answers), { 'POST 201': 180, 'GET 200': 180, 'DELETE 200': 180 })

    const sql = postgres(services.databaseUrl, { max: 1, onnotice: () => {} })
    t.teardown(() => sql.end({ timeout: 1 }))
    const lost = await sql`select id from api_keys where id = any (${revoked}) and revoked_at is null`
    t.equal(lost.length, 0, 'no revocation is lost')
    const open = await sql`
    select query from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`
    t.same(
      open.map(({ query }) => query),
      [],
      'no connection was left in a transaction',
    )
  },
)
