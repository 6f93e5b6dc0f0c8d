// GET /v1/keys/{id}: one key of the caller's user, in whatever state.
import t from 'tap'
import { makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { expectKey } from './expect-key.ts'

const instance = await startInstance(t, await useServices(t))
const nowS = () => Math.floor(Date.now() / 1000)

const get = (token: string, id: string) => instance.ask('GET', `/v1/keys/${id}`, { token })

t.test('a key of the caller is 200 and the bare key object', async (t) => {
  const caller = await makeCaller(instance)
  const expiresAt = nowS() + 3600
  const made = await makeKey(instance, { userId: caller.userId, name: 'mine', rateLimitRpm: 12, expiresAt })
  const answer = await get(caller.token, made.id)
  t.equal(answer.status, 200)
  expectRated(t, answer)
  expectKey(t, answer.body)
  t.match(answer.body, {
    id: made.id,
    name: 'mine',
    key_prefix: made.token.slice(0, 10),
    rate_limit_rpm: 12,
    expires_at: expiresAt,
    created_at: made.created_at,
    last_used_at: null,
    revoked_at: null,
  })
})

t.test('a revoked key is still there, with revoked_at', async (t) => {
  const caller = await makeCaller(instance)
  const made = await makeKey(instance, { userId: caller.userId })
  const beforeS = nowS()
  await instance.ask('DELETE', `/v1/keys/${made.id}`, { token: caller.token })
  const { status, body } = await get(caller.token, made.id)
  t.equal(status, 200)
  t.ok(body.revoked_at >= beforeS && body.revoked_at <= nowS(), 'Unix seconds of the revocation')
})

t.test('an expired key is still there', async (t) => {
  const caller = await makeCaller(instance)
  const expiresAt = nowS() - 60
  const made = await makeKey(instance, { userId: caller.userId, expiresAt })
  const { status, body } = await get(caller.token, made.id)
  t.equal(status, 200)
  t.match(body, { expires_at: expiresAt, revoked_at: null })
})

t.test('last_used_at is right at once, before it is written', async (t) => {
  const caller = await makeCaller(instance)
  const made = await makeKey(instance, { userId: caller.userId })
  t.equal((await get(caller.token, made.id)).body.last_used_at, null)
  const beforeS = nowS()
  await instance.ask('GET', '/v1/verify', { token: made.token })
  const { last_used_at } = (await get(caller.token, made.id)).body
  t.ok(last_used_at >= beforeS && last_used_at <= nowS(), `${last_used_at} is the second of its use`)
})

t.test('a request with the key itself is a use that it already shows', async (t) => {
  const caller = await makeCaller(instance)
  const beforeS = nowS()
  const { last_used_at } = (await get(caller.token, caller.id)).body
  t.ok(last_used_at >= beforeS && last_used_at <= nowS())
})

t.test('a key that does not exist, and one of a stranger, are 404', async (t) => {
  const { token } = await makeCaller(instance)
  const stranger = await makeCaller(instance)
  for (const id of ['apk_0000000000000000000000000000', stranger.id]) {
    const answer = await get(token, id)
    expectError(t, answer, 'not_found', 'id')
    expectRated(t, answer)
  }
})

t.test('getting a key without a key is 401', async (t) => {
  const { id } = await makeCaller(instance)
  expectError(t, await instance.ask('GET', `/v1/keys/${id}`), 'unauthorized')
})

t.test('getting a key over the limit is 429', async (t) => {
  const { id, token } = await makeCaller(instance, { rateLimitRpm: 1 })
  const answers = [await get(token, id), await get(token, id), await get(token, id)]
  const refused = answers.filter(({ status }) => status !== 200)
  t.ok(refused.length >= 1)
  for (const answer of refused) expectError(t, answer, 'rate_limit_exceeded')
})
