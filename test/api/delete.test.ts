// DELETE /v1/keys/{id}: revocation, which holds everywhere once it has answered, and for ever.
import t from 'tap'
import { makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { openDatabase } from './database.ts'
import { expectError, expectRated } from './expect-error.ts'
import { expectKey } from './expect-key.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const other = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl)
const nowS = () => Math.floor(Date.now() / 1000)

const revoke = (token: string, id: string) => instance.ask('DELETE', `/v1/keys/${id}`, { token })

t.test('a revocation is 200 and the bare key object with revoked_at', async (t) => {
  const caller = await makeCaller(instance)
  const { token, userId, ...made } = await makeKey(instance, { userId: caller.userId })
  const beforeS = nowS()
  const answer = await revoke(caller.token, made.id)
  t.equal(answer.status, 200)
  expectRated(t, answer)
  expectKey(t, answer.body)
  const { revoked_at } = answer.body
  t.ok(revoked_at >= beforeS && revoked_at <= nowS(), 'Unix seconds of now')
  t.same(answer.body, { ...made, revoked_at }, 'nothing else changed')
})

t.test('a revoked key is refused by every instance, although each had it cached', async (t) => {
  const caller = await makeCaller(instance)
  const made = await makeKey(instance, { userId: caller.userId })
  for (const { ask } of [instance, other])
    t.equal((await ask('GET', '/v1/verify', { token: made.token })).status, 200)
  await revoke(caller.token, made.id)
  for (const { ask } of [other, instance]) {
    expectError(t, await ask('GET', '/v1/verify', { token: made.token }), 'unauthorized')
  }
})

t.test('no request that begins after the answer to a revocation is admitted', async (t) => {
  const caller = await makeCaller(instance)
  const made = await makeKey(instance, { userId: caller.userId })
  let revoked = false
  let admittedLate = 0
  const use = async ({ ask }: typeof instance) => {
    for (let after = 0; after < 10; ) {
      const late = revoked
      const { status } = await ask('GET', '/v1/verify', { token: made.token })
      if (late) after++
      if (late && status !== 401) admittedLate++
    }
  }
  const users = [instance, other, instance, other].map(use)
  await revoke(caller.token, made.id)
  revoked = true
  await Promise.all(users)
  t.equal(admittedLate, 0)
})

t.test('revoking again is 200 with revoked_at as it was', async (t) => {
  const caller = await makeCaller(instance)
  const made = await makeKey(instance, { userId: caller.userId })
  await revoke(caller.token, made.id)
  // As if it had been an hour ago, so that a second revocation would show.
  await sql`update api_keys set revoked_at = revoked_at - interval '1 hour' where id = ${made.id}`
  const before = (await instance.ask('GET', `/v1/keys/${made.id}`, { token: caller.token })).body
  const again = await revoke(caller.token, made.id)
  t.equal(again.status, 200)
  t.same(again.body, before)
})

t.test('revocations at once are all 200 and agree on the moment', async (t) => {
  const caller = await makeCaller(instance)
  const made = await makeKey(instance, { userId: caller.userId })
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, i) =>
      (i % 2 ? instance : other).ask('DELETE', `/v1/keys/${made.id}`, { token: caller.token }),
    ),
  )
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]))
  t.equal(new Set(answers.map(({ body }) => body.revoked_at)).size, 1)
})

t.test('a key may revoke itself, and then nothing more', async (t) => {
  const { id, token } = await makeCaller(instance)
  const answer = await revoke(token, id)
  t.equal(answer.status, 200)
  t.type(answer.body.revoked_at, 'number')
  expectError(t, await revoke(token, id), 'unauthorized')
})

t.test('an expired key can be revoked', async (t) => {
  const caller = await makeCaller(instance)
  const made = await makeKey(instance, { userId: caller.userId, expiresAt: nowS() - 60 })
  const { status, body } = await revoke(caller.token, made.id)
  t.equal(status, 200)
  t.type(body.revoked_at, 'number')
})

t.test("the user's other keys go on", async (t) => {
  const caller = await makeCaller(instance)
  const [gone, kept] = [
    await makeKey(instance, { userId: caller.userId }),
    await makeKey(instance, { userId: caller.userId }),
  ]
  await revoke(caller.token, gone.id)
  t.equal((await instance.ask('GET', '/v1/verify', { token: kept.token })).status, 200)
})

t.test('DELETE ignores a body, whatever it is and says it is', async (t) => {
  const caller = await makeCaller(instance)
  const bodies = [
    { headers: { 'content-type': 'application/json' } },
    { headers: { 'content-type': 'application/json' }, body: '{"name":' },
    { headers: { 'content-type': 'application/json' }, body: new Uint8Array([0xff, 0xfe]) },
    { headers: { 'content-type': 'text/plain' }, body: 'please' },
    { headers: { 'content-type': 'application/x-www-form-urlencoded' }, body: 'a=b' },
    { body: new Uint8Array([1, 2, 3]) },
    { json: { unknown: true } },
  ]
  for (const body of bodies) {
    const made = await makeKey(instance, { userId: caller.userId })
    const answer = await instance.ask('DELETE', `/v1/keys/${made.id}`, { token: caller.token, ...body })
    t.equal(answer.status, 200, JSON.stringify(body))
    t.type(answer.body.revoked_at, 'number')
  }
})

t.test('a revocation is audited with who revoked what', async (t) => {
  const caller = await makeCaller(instance)
  const made = await makeKey(instance, { userId: caller.userId })
  const { headers } = await revoke(caller.token, made.id)
  const entries = await instance.service.stores.audit.find(headers.get('x-request-id')!)
  t.equal(entries.length, 1)
  t.match(entries[0], { key_id: made.id, user_id: caller.userId, reason: null, method: 'DELETE' })
})

t.test("a stranger's key is 404 to DELETE, and stays usable", async (t) => {
  const { token } = await makeCaller(instance)
  const stranger = await makeCaller(instance)
  expectError(t, await revoke(token, stranger.id), 'not_found', 'id')
  expectError(t, await revoke(token, 'apk_0000000000000000000000000000'), 'not_found', 'id')
  t.equal((await instance.ask('GET', '/v1/verify', { token: stranger.token })).status, 200)
})

t.test('revoking without a key is 401 and revokes nothing', async (t) => {
  const { id, token } = await makeCaller(instance)
  expectError(t, await instance.ask('DELETE', `/v1/keys/${id}`), 'unauthorized')
  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200)
})

t.test('a revocation over the limit is 429 and revokes nothing', async (t) => {
  const caller = await makeCaller(instance, { rateLimitRpm: 1 })
  const made = [
    await makeKey(instance, { userId: caller.userId }),
    await makeKey(instance, { userId: caller.userId }),
    await makeKey(instance, { userId: caller.userId }),
  ]
  const answers = []
  for (const { id } of made) answers.push(await revoke(caller.token, id))
  t.ok(answers.some(({ status }) => status === 429))
  for (const [i, answer] of answers.entries()) {
    const { status } = await instance.ask('GET', '/v1/verify', { token: made[i]!.token })
    if (answer.status === 429) expectError(t, answer, 'rate_limit_exceeded')
    t.equal(status, answer.status === 429 ? 200 : 401)
  }
})
