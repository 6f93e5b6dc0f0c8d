// Requests of every kind at once: each must be answered as if it were alone, and what was answered must be committed.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { openDatabase } from './database.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl)

t.test('reads, creations and changes at once are all answered with success', async (t) => {
  const { id, token } = await makeCaller(instance)
  const answers = await Promise.all(
    Array.from({ length: 120 }, async (_, i) => {
      if (i % 4 === 0) return instance.ask('POST', '/v1/keys', { token, json: { name: `at once ${i}` } })
      if (i % 4 === 1) return instance.ask('GET', '/v1/keys?limit=5', { token })
      if (i % 4 === 2) return instance.ask('GET', `/v1/keys/${id}`, { token })
      return instance.ask('PATCH', `/v1/keys/${id}`, { token, json: { name: `changed ${i}` } })
    }),
  )
  const count: Record<string, number> = {}
  for (const { status, body } of answers) {
    const outcome = `${status} ${body?.error?.code ?? ''}`.trim()
    count[outcome] = (count[outcome] ?? 0) + 1
  }
  t.same(count, { 200: 90, 201: 30 })
})

// Another connection sees only what is committed.
t.test('creations, changes and revocations answered under load are in the database', async (t) => {
  const { id, token } = await makeCaller(instance)
  const wrong: string[] = []
  await Promise.all(
    Array.from({ length: 12 }, async (_, client) => {
      for (let round = 0; round < 4; round++) {
        const name = `client ${client}, round ${round}`
        await Promise.all([
          instance.ask('GET', `/v1/keys/${id}`, { token }),
          instance.ask('GET', '/v1/keys?limit=5', { token }),
        ])
        const created = await instance.ask('POST', '/v1/keys', { token, json: { name } })
        if (created.status !== 201) {
          wrong.push(`creation ${created.status}`)
          continue
        }
        const path = `/v1/keys/${created.body.id}`
        const changed = await instance.ask('PATCH', path, { token, json: { rate_limit_rpm: 5 } })
        const revoked = await instance.ask('DELETE', path, { token })
        wrong.push(
          ...[changed, revoked].flatMap(({ status }) => (status === 200 ? [] : [`change ${status}`])),
        )
        const [row] = await sql`
          select rate_limit_rpm, revoked_at is not null as revoked from api_keys where id = ${created.body.id}`
        if (row === undefined) wrong.push('a creation that is not there')
        else if (changed.status === 200 && row.rate_limit_rpm !== 5) wrong.push('a change that is not there')
        else if (revoked.status === 200 && !row.revoked) wrong.push('a revocation that is not there')
      }
    }),
  )
  t.same(wrong, [])
})
