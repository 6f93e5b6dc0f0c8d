// GET /v1/verify: what a gateway asks before it lets a request through.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { useServices } from '../services/index.ts'
import { openDatabase } from './database.ts'
import { expectRated } from './expect-error.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const nowS = () => Math.floor(Date.now() / 1000)

const verify = (token: string) => instance.ask('GET', '/v1/verify', { token })

t.test('a usable key is 200, and body and headers name its owner', async (t) => {
  const expiresAt = nowS() + 3600
  const { id, token, userId } = await makeCaller(instance, { rateLimitRpm: 30, expiresAt })
  const answer = await verify(token)
  t.equal(answer.status, 200)
  t.same(answer.body, { key_id: id, user_id: userId, rate_limit_rpm: 30, expires_at: expiresAt })
  t.equal(answer.headers.get('x-key-id'), id)
  t.equal(answer.headers.get('x-user-id'), userId)
  expectRated(t, answer)
  t.equal(answer.headers.get('x-ratelimit-remaining'), '29')
})

t.test('expires_at is null for a key that does not expire', async (t) => {
  const { token } = await makeCaller(instance)
  t.equal((await verify(token)).body.expires_at, null)
})

t.test('a use is written to the database', async (t) => {
  const sql = openDatabase(t, services.databaseUrl)
  const { id, token } = await makeCaller(instance)
  const beforeS = nowS()
  await verify(token)
  const usedS = await until('the use is written', async () => {
    const [row] =
      await sql`select extract(epoch from last_used_at)::float8 as used from api_keys where id = ${id}`
    return row!.used as number | null
  })
  t.ok(usedS >= beforeS && usedS <= nowS() + 1, `last_used_at is ${usedS}`)
})

t.test('requests at once are each answered with their own key', async (t) => {
  const callers = await Promise.all(Array.from({ length: 20 }, () => makeCaller(instance)))
  const asked = Array.from({ length: 200 }, (_, i) => callers[i % callers.length]!)
  const answers = await Promise.all(asked.map(({ token }) => verify(token)))
  t.same(
    answers.map(({ body, headers }) => [body.key_id, headers.get('x-user-id')]),
    asked.map(({ id, userId }) => [id, userId]),
  )
})
