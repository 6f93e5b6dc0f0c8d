// PATCH /v1/keys/{id}: what may change, that it holds everywhere at once, and that a refused change changes nothing.
import t from 'tap'
import { makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { expectKey } from './expect-key.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const other = await startInstance(t, services)
const nowS = () => Math.floor(Date.now() / 1000)

const patch = (token: string, id: string, json: unknown) =>
  instance.ask('PATCH', `/v1/keys/${id}`, { token, json })
const get = async (token: string, id: string) => (await instance.ask('GET', `/v1/keys/${id}`, { token })).body

async function callerAndKey(wanted: { expiresAt?: number; rateLimitRpm?: number } = {}) {
  const caller = await makeCaller(instance)
  return { caller, key: await makeKey(instance, { userId: caller.userId, name: 'before', ...wanted }) }
}

t.test('a change is 200 and the bare key object, with what was not named as it was', async (t) => {
  const { caller, key } = await callerAndKey({ rateLimitRpm: 5 })
  const { token, userId, ...before } = key
  const answer = await patch(caller.token, key.id, { rate_limit_rpm: 9 })
  t.equal(answer.status, 200)
  expectRated(t, answer)
  expectKey(t, answer.body)
  t.same(answer.body, { ...before, rate_limit_rpm: 9 })
  t.same(await get(caller.token, key.id), answer.body)
})

const laterS = nowS() + 86_400
const changes = [
  { name: 'after' },
  { rate_limit_rpm: 1 },
  { rate_limit_rpm: 1_000_000_000 },
  { expires_at: laterS },
  { expires_at: null },
  { name: 'all', rate_limit_rpm: 3, expires_at: laterS },
]
for (const change of changes) {
  t.test(`a change to ${JSON.stringify(change)} is made and no other`, async (t) => {
    const { caller, key } = await callerAndKey({ expiresAt: laterS + 1 })
    const before = await get(caller.token, key.id)
    const { status, body } = await patch(caller.token, key.id, change)
    t.equal(status, 200)
    t.same(body, { ...before, ...change })
    t.same(await get(caller.token, key.id), body)
  })
}

t.test('a changed limit is the limit of the next request on every instance', async (t) => {
  const { caller, key } = await callerAndKey({ rateLimitRpm: 100 })
  const limits = async () => {
    const answers = [instance, other].map(({ ask }) => ask('GET', '/v1/verify', { token: key.token }))
    return (await Promise.all(answers)).map(({ headers }) => headers.get('x-ratelimit-limit'))
  }
  t.same(await limits(), ['100', '100'])
  await patch(caller.token, key.id, { rate_limit_rpm: 200 })
  t.same(await limits(), ['200', '200'])
  await patch(caller.token, key.id, { rate_limit_rpm: 50 })
  t.same(await limits(), ['50', '50'])
})

t.test('a changed expiry is seen at once by every instance', async (t) => {
  const { caller, key } = await callerAndKey()
  const expiries = async () => {
    const answers = [instance, other].map(({ ask }) => ask('GET', '/v1/verify', { token: key.token }))
    return (await Promise.all(answers)).map(({ body }) => body.expires_at)
  }
  t.same(await expiries(), [null, null])
  await patch(caller.token, key.id, { expires_at: laterS })
  t.same(await expiries(), [laterS, laterS])
  await patch(caller.token, key.id, { expires_at: null })
  t.same(await expiries(), [null, null])
})

t.test('changes at once to different members are all kept', async (t) => {
  const { caller, key } = await callerAndKey()
  const members = [{ name: 'renamed' }, { rate_limit_rpm: 77 }, { expires_at: laterS }]
  const answers = await Promise.all(members.map((change) => patch(caller.token, key.id, change)))
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]))
  t.match(await get(caller.token, key.id), { name: 'renamed', rate_limit_rpm: 77, expires_at: laterS })
})

t.test('a key may change itself', async (t) => {
  const { id, token } = await makeCaller(instance)
  t.equal((await patch(token, id, { rate_limit_rpm: 500 })).body.rate_limit_rpm, 500)
  const next = await instance.ask('GET', '/v1/verify', { token })
  t.equal(next.headers.get('x-ratelimit-limit'), '500')
})

t.test('a change is audited with who changed what', async (t) => {
  const { caller, key } = await callerAndKey()
  const { headers } = await patch(caller.token, key.id, { name: 'audited' })
  const entries = await instance.service.stores.audit.find(headers.get('x-request-id')!)
  t.equal(entries.length, 1)
  t.match(entries[0], { key_id: key.id, user_id: caller.userId, reason: null, method: 'PATCH' })
})

const refused: [
  body: unknown,
  code: 'missing_parameter' | 'unknown_parameter' | 'invalid_parameter',
  param: string,
][] = [
  [{}, 'missing_parameter', ''],
  [{ name: 'x', colour: 'red' }, 'unknown_parameter', 'colour'],
  [{ id: 'apk_other' }, 'unknown_parameter', 'id'],
  [{ key_prefix: 'lk_AAAAAAA' }, 'unknown_parameter', 'key_prefix'],
  [{ plain_key: 'lk_x' }, 'unknown_parameter', 'plain_key'],
  [{ revoked_at: null }, 'unknown_parameter', 'revoked_at'],
  [{ created_at: 0 }, 'unknown_parameter', 'created_at'],
  [{ last_used_at: 0 }, 'unknown_parameter', 'last_used_at'],
  [{ user_id: 'usr_x' }, 'unknown_parameter', 'user_id'],
  [{ name: null }, 'invalid_parameter', 'name'],
  [{ name: '' }, 'invalid_parameter', 'name'],
  [{ name: '  ' }, 'invalid_parameter', 'name'],
  [{ name: 5 }, 'invalid_parameter', 'name'],
  [{ rate_limit_rpm: null }, 'invalid_parameter', 'rate_limit_rpm'],
  [{ rate_limit_rpm: 0 }, 'invalid_parameter', 'rate_limit_rpm'],
  [{ rate_limit_rpm: 1_000_000_001 }, 'invalid_parameter', 'rate_limit_rpm'],
  [{ rate_limit_rpm: '5' }, 'invalid_parameter', 'rate_limit_rpm'],
  [{ rate_limit_rpm: 1.5 }, 'invalid_parameter', 'rate_limit_rpm'],
  [{ name: 'fine', rate_limit_rpm: 0 }, 'invalid_parameter', 'rate_limit_rpm'],
  [{ expires_at: 0 }, 'invalid_parameter', 'expires_at'],
  [{ expires_at: nowS() - 60 }, 'invalid_parameter', 'expires_at'],
  [{ expires_at: 4_102_444_800 }, 'invalid_parameter', 'expires_at'],
  [[], 'invalid_parameter', ''],
  [null, 'invalid_parameter', ''],
]
for (const [body, code, param] of refused) {
  t.test(`a change to ${JSON.stringify(body)} is refused and changes nothing`, async (t) => {
    const { caller, key } = await callerAndKey()
    const before = await get(caller.token, key.id)
    const answer = await patch(caller.token, key.id, body)
    expectError(t, answer, code, param)
    expectRated(t, answer)
    t.same(await get(caller.token, key.id), before)
  })
}

t.test('a change of a revoked key is 409 and changes nothing', async (t) => {
  const { caller, key } = await callerAndKey()
  await instance.ask('DELETE', `/v1/keys/${key.id}`, { token: caller.token })
  const before = await get(caller.token, key.id)
  const answer = await patch(caller.token, key.id, { name: 'after' })
  expectError(t, answer, 'key_not_active')
  expectRated(t, answer)
  t.same(await get(caller.token, key.id), before)
})

t.test('a change of an expired key is 409, also one that would make it last longer', async (t) => {
  const expiresAt = nowS() - 60
  const { caller, key } = await callerAndKey({ expiresAt })
  for (const change of [{ expires_at: null }, { expires_at: laterS }, { name: 'after' }]) {
    expectError(t, await patch(caller.token, key.id, change), 'key_not_active')
  }
  t.match(await get(caller.token, key.id), { name: 'before', expires_at: expiresAt })
})

t.test("a stranger's key is 404 to PATCH and unchanged", async (t) => {
  const { token } = await makeCaller(instance)
  const stranger = await makeCaller(instance)
  expectError(t, await patch(token, stranger.id, { name: 'taken' }), 'not_found', 'id')
  expectError(t, await patch(token, 'apk_0000000000000000000000000000', { name: 'taken' }), 'not_found', 'id')
  t.equal((await get(stranger.token, stranger.id)).name, stranger.name)
})

t.test('a change without a key is 401 and changes nothing', async (t) => {
  const { caller, key } = await callerAndKey()
  const answer = await instance.ask('PATCH', `/v1/keys/${key.id}`, { json: { name: 'taken' } })
  expectError(t, answer, 'unauthorized')
  t.equal((await get(caller.token, key.id)).name, 'before')
})

t.test('a change over the limit is 429 and changes nothing', async (t) => {
  const { caller, key } = await callerAndKey({ rateLimitRpm: 1 })
  const names = ['one', 'two', 'three']
  const answers = []
  for (const name of names) answers.push(await patch(key.token, key.id, { name }))
  const admitted = answers.flatMap(({ status }, i) => (status === 200 ? [names[i]] : []))
  t.ok(admitted.length < 3)
  for (const answer of answers) if (answer.status !== 200) expectError(t, answer, 'rate_limit_exceeded')
  t.equal((await get(caller.token, key.id)).name, admitted.at(-1))
})
