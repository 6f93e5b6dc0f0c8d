// PATCH and DELETE /v1/keys/{id}: both hold on every instance once they are answered. Values are
// tested in values.test.ts.
import t from 'tap'
import { type Instance, makeCaller, makeKey, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { expectKey } from './expect-key.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const other = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl)
const admin = await makeCaller(instance)
const { token } = admin
const nowS = () => Math.floor(Date.now() / 1000)
const laterS = nowS() + 86_400

const make = (wanted: { name?: string; rateLimitRpm?: number; expiresAt?: number } = {}) =>
  makeKey(instance, { userId: admin.userId, ...wanted })
const patch = (id: string, json: unknown) => instance.ask('PATCH', `/v1/keys/${id}`, { token, json })
const revoke = (id: string) => instance.ask('DELETE', `/v1/keys/${id}`, { token })
const get = async (id: string) => (await instance.ask('GET', `/v1/keys/${id}`, { token })).body
const verify = (key: { token: string }, { ask }: Instance = instance) =>
  ask('GET', '/v1/verify', { token: key.token })

t.test('a change is 200 and the key object, with everything else as it was', async (t) => {
  for (const change of [
    { name: 'after' },
    { rate_limit_rpm: 1 },
    { expires_at: laterS },
    { expires_at: null },
    { name: 'all', rate_limit_rpm: 1_000_000_000, expires_at: laterS },
  ]) {
    const { token, userId, ...before } = await make({ rateLimitRpm: 5, expiresAt: laterS + 1 })
    const answer = await patch(before.id, change)
    t.equal(answer.status, 200)
    expectRated(t, answer)
    expectKey(t, answer.body)
    t.same(answer.body, { ...before, ...change })
    t.same(await get(before.id), answer.body)
  }
})

t.test('a change and a revocation show a use that is not stored yet', async (t) => {
  const key = await make()
  const since = nowS()
  await verify(key)
  const changed = await patch(key.id, { name: 'used' })
  await sql`update api_keys set last_used_at = null where id = ${key.id}`
  await verify(key)
  for (const { body } of [changed, await revoke(key.id)]) t.ok(body.last_used_at >= since)
})

t.test('a changed limit and expiry hold for the next request on every instance', async (t) => {
  const key = await make({ rateLimitRpm: 100 })
  const seen = async () => {
    const answers = await Promise.all([verify(key, instance), verify(key, other)])
    return answers.map(({ headers, body }) => [headers.get('x-ratelimit-limit'), body.expires_at])
  }
  const everywhere = (limit: string, expiresAt: number | null) => [
    [limit, expiresAt],
    [limit, expiresAt],
  ]
  t.same(await seen(), everywhere('100', null))
  await patch(key.id, { rate_limit_rpm: 200 })
  t.same(await seen(), everywhere('200', null))
  await patch(key.id, { expires_at: laterS })
  t.same(await seen(), everywhere('200', laterS))
  await patch(key.id, { rate_limit_rpm: 50, expires_at: null })
  t.same(await seen(), everywhere('50', null))
})

t.test('a key may change and revoke itself', async (t) => {
  const { id, token } = await makeCaller(instance)
  const own = { token, json: { rate_limit_rpm: 500 } }
  t.equal((await instance.ask('PATCH', `/v1/keys/${id}`, own)).body.rate_limit_rpm, 500)
  t.equal((await verify({ token })).headers.get('x-ratelimit-limit'), '500')
  const { status, body } = await instance.ask('DELETE', `/v1/keys/${id}`, { token })
  t.equal(status, 200)
  t.type(body.revoked_at, 'number')
  t.equal((await verify({ token })).status, 401)
})

t.test('a change to nothing is missing_parameter, and one with a bad member changes nothing', async (t) => {
  const key = await make()
  const before = await get(key.id)
  expectError(t, await patch(key.id, {}), 'missing_parameter', '')
  const answer = await patch(key.id, { name: 'fine', rate_limit_rpm: 0 })
  expectError(t, answer, 'invalid_parameter', 'rate_limit_rpm')
  expectRated(t, answer)
  t.same(await get(key.id), before)
})

t.test('a change of a revoked or expired key is 409, even to a later expiry', async (t) => {
  const revoked = await make()
  await revoke(revoked.id)
  const expired = await make({ expiresAt: nowS() - 60 })
  for (const { id } of [revoked, expired]) {
    const before = await get(id)
    for (const change of [{ expires_at: null }, { expires_at: laterS }, { name: 'after' }]) {
      const answer = await patch(id, change)
      expectError(t, answer, 'key_not_active')
      expectRated(t, answer)
    }
    t.same(await get(id), before)
  }
})

t.test('a revocation is 200 and the key object with revoked_at', async (t) => {
  const { token, userId, ...before } = await make()
  const beforeS = nowS()
  const answer = await revoke(before.id)
  t.equal(answer.status, 200)
  expectRated(t, answer)
  expectKey(t, answer.body)
  const { revoked_at } = answer.body
  t.ok(revoked_at >= beforeS && revoked_at <= nowS(), 'Unix seconds of now')
  t.same(answer.body, { ...before, revoked_at })
})

t.test('no request sent after the response to a revocation is admitted, on any instance', async (t) => {
  const key = await make()
  for (const one of [instance, other]) t.equal((await verify(key, one)).status, 200, 'it is cached')
  let isRevoked = false
  const statusesAfter = new Set<number>()
  const use = async (one: Instance) => {
    for (let after = 0; after < 10; ) {
      const sentAfter = isRevoked
      const { status } = await verify(key, one)
      if (sentAfter) statusesAfter.add(status)
      if (sentAfter) after++
    }
  }
  const users = [instance, other, instance, other].map(use)
  await revoke(key.id)
  isRevoked = true
  await Promise.all(users)
  t.same([...statusesAfter], [401])
})

t.test('revoking again is 200 with the same revoked_at', async (t) => {
  const { id } = await make()
  await revoke(id)
  // An hour ago, so that a second revocation would show.
  await sql`update api_keys set revoked_at = revoked_at - interval '1 hour' where id = ${id}`
  const before = await get(id)
  const again = await revoke(id)
  t.equal(again.status, 200)
  t.same(again.body, before)
})

t.test('an expired key can be revoked', async (t) => {
  const { id } = await make({ expiresAt: nowS() - 60 })
  const { status, body } = await revoke(id)
  t.equal(status, 200)
  t.type(body.revoked_at, 'number')
})

t.test('DELETE ignores a body of any kind', async (t) => {
  const json = { 'content-type': 'application/json' }
  const bodies = [
    { headers: json },
    { headers: json, body: '{"name":' },
    { headers: json, body: new Uint8Array([0xff, 0xfe]) },
    { headers: { 'content-type': 'text/plain' }, body: 'please' },
    { headers: { 'content-type': 'application/x-www-form-urlencoded' }, body: 'a=b' },
    { body: new Uint8Array([1, 2, 3]) },
    { json: { unknown: true } },
  ]
  for (const body of bodies) {
    const { id } = await make()
    const answer = await instance.ask('DELETE', `/v1/keys/${id}`, { token, ...body })
    t.equal(answer.status, 200, JSON.stringify(body))
    t.type(answer.body.revoked_at, 'number')
  }
})

t.test('creation, change and revocation are each audited once, with who did it to what', async (t) => {
  const created = await instance.ask('POST', '/v1/keys', { token, json: { name: 'audited' } })
  const { id, plain_key } = created.body
  const answers = { POST: created, PATCH: await patch(id, { name: 'changed' }), DELETE: await revoke(id) }
  for (const [method, { headers }] of Object.entries(answers)) {
    const entries = await instance.service.stores.audit.find(headers.get('x-request-id')!)
    t.match(entries, [{ method, key_id: id, user_id: admin.userId, actor: `key:${admin.id}`, reason: null }])
    t.equal(entries.length, 1)
    t.notMatch(JSON.stringify(entries), plain_key.slice(10))
  }
})
