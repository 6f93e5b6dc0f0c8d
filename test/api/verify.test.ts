// GET /v1/verify: what a gateway asks before it lets a request through.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { useServices } from '../services/index.ts'
import { openDatabase } from './database.ts'
import { expectError, expectRated } from './expect-error.ts'
import { inOneMinute } from './one-minute.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl)
const nowS = () => Math.floor(Date.now() / 1000)

const verify = (token: string) => instance.ask('GET', '/v1/verify', { token })

t.test('a usable key is 200 and tells whose it is, in the body and in headers', async (t) => {
  const expiresAt = nowS() + 3600
  const { id, token, userId } = await makeCaller(instance, { rateLimitRpm: 30, expiresAt })
  const answer = await verify(token)
  t.equal(answer.status, 200)
  t.same(answer.body, { key_id: id, user_id: userId, rate_limit_rpm: 30, expires_at: expiresAt })
  t.equal(answer.headers.get('x-key-id'), id)
  t.equal(answer.headers.get('x-user-id'), userId)
  t.match(answer.headers.get('x-request-id'), /^req_[0-9A-Za-z]+$/)
  expectRated(t, answer)
})

t.test('a key without an expiry is verified with expires_at null', async (t) => {
  const { token } = await makeCaller(instance)
  t.equal((await verify(token)).body.expires_at, null)
})

t.test(
  'every verification counts, and the one over the limit is 429 without saying whose key it was',
  async (t) => {
    const { answers } = await inOneMinute(async () => {
      const { token } = await makeCaller(instance, { rateLimitRpm: 2 })
      return { answers: [await verify(token), await verify(token), await verify(token)] }
    })
    t.same(
      answers.map(({ status }) => status),
      [200, 200, 429],
    )
    t.same(
      answers.map(({ headers }) => headers.get('x-ratelimit-remaining')),
      ['1', '0', '0'],
    )
    expectError(t, answers[2]!, 'rate_limit_exceeded')
  },
)

t.test('a verification is written as a use', async (t) => {
  const { id, token } = await makeCaller(instance)
  const beforeS = nowS()
  await verify(token)
  const used = await until('the use is written', async () => {
    const [row] =
      await sql`select extract(epoch from last_used_at)::float8 as used from api_keys where id = ${id}`
    return row!.used as number | null
  })
  t.ok(used >= beforeS && used <= nowS() + 1, `last_used_at is ${used}`)
})

t.test('a verification without a key, or with an unknown one, is 401 and names nobody', async (t) => {
  for (const ask of [{}, { token: `lk_${'0'.repeat(38)}` }]) {
    const answer = await instance.ask('GET', '/v1/verify', ask)
    expectError(t, answer, 'unauthorized')
    t.equal(answer.headers.get('x-key-id'), null)
    t.equal(answer.headers.get('x-user-id'), null)
  }
})

t.test('verifying is GET only', async (t) => {
  const { token } = await makeCaller(instance)
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
    const answer = await instance.ask(method, '/v1/verify', { token })
    expectError(t, answer, 'method_not_allowed')
    t.match(answer.headers.get('allow'), /\bGET\b/)
  }
})

t.test('verifications at once are each answered with their own key', async (t) => {
  const callers: Awaited<ReturnType<typeof makeCaller>>[] = []
  for (let made = 0; made < 20; made++) callers.push(await makeCaller(instance))
  const asked = Array.from({ length: 200 }, (_, i) => callers[i % callers.length]!)
  const answers = await Promise.all(asked.map(({ token }) => verify(token)))
  t.same(
    answers.map(({ body, headers }) => [body.key_id, headers.get('x-user-id')]),
    asked.map(({ id, userId }) => [id, userId]),
  )
})
