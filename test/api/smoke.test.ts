// GET /v1/verify: what a gateway asks before it lets a request through.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectRated } from './expect-error.ts'

const instance = await startInstance(t, await useServices(t))
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

t.test('requests at once are each answered with their own key', async (t) => {
  const callers = await Promise.all(Array.from({ length: 20 }, () => makeCaller(instance)))
  const asked = Array.from({ length: 200 }, (_, i) => callers[i % callers.length]!)
  const answers = await Promise.all(asked.map(({ token }) => verify(token)))
  t.same(
    answers.map(({ body, headers }) => [body.key_id, headers.get('x-user-id')]),
    asked.map(({ id, userId }) => [id, userId]),
  )
})
