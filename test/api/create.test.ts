// POST /v1/keys: what is minted, what is answered, and when nothing is minted.
import t from 'tap'
import { deleteUser, makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { countKeys, openDatabase } from './database.ts'
import { expectError, expectRated } from './expect-error.ts'
import { expectKey } from './expect-key.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl)
const nowS = () => Math.floor(Date.now() / 1000)

const create = (token: string, json: unknown) => instance.ask('POST', '/v1/keys', { token, json })

t.test('a creation with a name alone is 201 and the whole key with its defaults', async (t) => {
  const { token } = await makeCaller(instance)
  const beforeS = nowS()
  const { status, body } = await create(token, { name: 'first' })
  t.equal(status, 201)
  expectKey(t, body, { withSecret: true })
  t.match(body, {
    name: 'first',
    rate_limit_rpm: 1000,
    last_used_at: null,
    expires_at: null,
    revoked_at: null,
  })
  t.match(body.id, /^apk_[0-9A-Za-z]+$/)
  t.ok(body.created_at >= beforeS && body.created_at <= nowS(), 'created_at is Unix seconds of now')
  t.match(body.plain_key, /^lk_[0-9A-Za-z]{38}$/, 'the prefix, 32 random characters and 6 of checksum')
  t.equal(body.key_prefix, body.plain_key.slice(0, 10))
})

t.test('a creation says where the key is and that nobody may store the answer', async (t) => {
  const { token } = await makeCaller(instance)
  const created = await create(token, { name: 'located' })
  expectRated(t, created)
  t.equal(created.headers.get('cache-control'), 'no-store')
  t.match(created.headers.get('x-request-id'), /^req_[0-9A-Za-z]+$/)
  const location = new URL(created.headers.get('location')!, 'http://latchkey.test')
  t.equal(location.pathname, `/v1/keys/${created.body.id}`)
  const { plain_key, ...key } = created.body
  t.same((await instance.ask('GET', location.pathname, { token })).body, key)
})

t.test('a creation takes the limit and the expiry that were asked for', async (t) => {
  const { token } = await makeCaller(instance)
  const wanted = { name: 'wanted', rate_limit_rpm: 7, expires_at: nowS() + 3600 }
  const { status, body } = await create(token, wanted)
  t.equal(status, 201)
  t.match(body, wanted)
  const used = await instance.ask('GET', '/v1/verify', { token: body.plain_key })
  t.equal(used.headers.get('x-ratelimit-limit'), '7')
})

t.test('expires_at null at creation means no expiry', async (t) => {
  const { token } = await makeCaller(instance)
  const { status, body } = await create(token, { name: 'eternal', expires_at: null })
  t.equal(status, 201)
  t.equal(body.expires_at, null)
})

t.test("a minted key works at once, on every instance, and belongs to its creator's user", async (t) => {
  const other = await startInstance(t, services)
  const caller = await makeCaller(instance)
  const { body } = await create(caller.token, { name: 'minted' })
  for (const { ask } of [other, instance]) {
    const used = await ask('GET', '/v1/verify', { token: body.plain_key })
    t.equal(used.status, 200)
    t.match(used.body, { key_id: body.id, user_id: caller.userId })
  }
})

t.test('two creations with one body are two keys with two secrets', async (t) => {
  const { token } = await makeCaller(instance)
  const [one, two] = await Promise.all([create(token, { name: 'twin' }), create(token, { name: 'twin' })])
  t.not(one.body.id, two.body.id)
  t.not(one.body.plain_key, two.body.plain_key)
})

t.test('the operator chooses the default limit and the prefix of keys', async (t) => {
  const other = await startInstance(
    t,
    { ...services, databaseUrl: await services.createDatabase() },
    { DEFAULT_RATE_LIMIT_RPM: '42', KEY_PREFIX: 'acme' },
  )
  const { token } = await makeCaller(other)
  const { body } = await other.ask('POST', '/v1/keys', { token, json: { name: 'branded' } })
  t.equal(body.rate_limit_rpm, 42)
  t.match(body.plain_key, /^acme_[0-9A-Za-z]{38}$/)
  t.equal(body.key_prefix, body.plain_key.slice(0, 10))
  t.match((await other.ask('GET', '/v1/verify')).body.error.suggestion, 'Authorization: Bearer acme_...')
})

t.test('a creation is audited with who made what, and without the secret', async (t) => {
  const caller = await makeCaller(instance)
  const created = await create(caller.token, { name: 'audited' })
  const entries = await instance.service.stores.audit.find(created.headers.get('x-request-id')!)
  t.equal(entries.length, 1)
  t.match(entries[0], {
    id: /^aud_[0-9A-Za-z]+$/,
    key_id: created.body.id,
    user_id: caller.userId,
    reason: null,
  })
  t.notMatch(JSON.stringify(entries), created.body.plain_key.slice(10))
})

t.test('a name that holds an API key is 400, by creation and change, and is kept nowhere', async (t) => {
  const caller = await makeCaller(instance)
  const secret = (await create(caller.token, { name: 'to be told' })).body.plain_key
  for (const name of [secret, `backup of ${secret}, old`, `lk_lk_${secret}x`]) {
    const answer = await create(caller.token, { name })
    expectError(t, answer, 'invalid_parameter', 'name')
    t.notOk(answer.text.includes(secret), 'nor is it repeated')
    const changed = await instance.ask('PATCH', `/v1/keys/${caller.id}`, {
      token: caller.token,
      json: { name },
    })
    expectError(t, changed, 'invalid_parameter', 'name')
  }
  const damaged = `${secret.slice(0, -1)}${secret.endsWith('0') ? '1' : '0'}`
  t.equal(
    (await create(caller.token, { name: damaged })).status,
    201,
    'what is no key is a name like any other',
  )
  t.equal(await countKeys(sql, caller.userId), 3)
})

t.test('a creation without a name is 400 and mints nothing', async (t) => {
  const { token, userId } = await makeCaller(instance)
  expectError(t, await create(token, { rate_limit_rpm: 5 }), 'missing_parameter', 'name')
  t.equal(await countKeys(sql, userId), 1)
})

t.test('a creation without a key is 401 and mints nothing', async (t) => {
  const [before] = await sql`select count(*)::int as keys from api_keys`
  expectError(t, await instance.ask('POST', '/v1/keys', { json: { name: 'no one' } }), 'unauthorized')
  t.same(await sql`select count(*)::int as keys from api_keys`, [before!])
})

t.test('a creation over the rate limit is 429 and mints nothing', async (t) => {
  const { token, userId } = await makeCaller(instance, { rateLimitRpm: 1 })
  const answers = [
    await create(token, { name: 'a' }),
    await create(token, { name: 'b' }),
    await create(token, { name: 'c' }),
  ]
  const refused = answers.filter(({ status }) => status !== 201)
  // Two where a minute ended between them.
  t.ok(refused.length >= 1)
  for (const answer of refused) expectError(t, answer, 'rate_limit_exceeded')
  t.equal(await countKeys(sql, userId), 1 + answers.length - refused.length)
})

t.test('a creation beyond MAX_KEYS_PER_USER is 409; revoked and expired keys do not count', async (t) => {
  const bounded = await startInstance(t, services, { MAX_KEYS_PER_USER: '3' })
  const { token, userId } = await makeCaller(bounded)
  const another = () => bounded.ask('POST', '/v1/keys', { token, json: { name: 'another' } })
  await makeKey(bounded, { userId, expiresAt: nowS() - 60 })
  const second = await another()
  t.equal((await another()).status, 201)
  const refused = await another()
  expectError(t, refused, 'key_limit_reached')
  expectRated(t, refused)
  t.equal(await countKeys(sql, userId), 4)

  await bounded.ask('DELETE', `/v1/keys/${second.body.id}`, { token })
  t.equal((await another()).status, 201, 'a revoked key made room')
})

t.test('creations at once never pass MAX_KEYS_PER_USER', async (t) => {
  const env = { MAX_KEYS_PER_USER: '6' }
  const [one, two] = [await startInstance(t, services, env), await startInstance(t, services, env)]
  const { token, userId } = await makeCaller(one)
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, i) =>
      (i % 2 ? one : two).ask('POST', '/v1/keys', { token, json: { name: `at once ${i}` } }),
    ),
  )
  t.equal(answers.filter(({ status }) => status === 201).length, 5)
  t.equal(answers.filter(({ status }) => status === 409).length, 15)
  t.equal(await countKeys(sql, userId), 6)
})

// The change is made behind the cache's back, so only the insert itself can notice it.
t.test('a key revoked while its POST is under way mints nothing', async (t) => {
  const { id, token, userId } = await makeCaller(instance)
  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200, 'it is cached')
  await sql`update api_keys set revoked_at = now() where id = ${id}`
  expectError(t, await create(token, { name: 'too late' }), 'unauthorized')
  t.equal(await countKeys(sql, userId), 1)
})

t.test('a user deleted while a POST is under way gets no key', async (t) => {
  const { token, userId } = await makeCaller(instance)
  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200, 'it is cached')
  await sql`update users set deleted_at = now() where id = ${userId}`
  expectError(t, await create(token, { name: 'too late' }), 'unauthorized')
  t.equal(await countKeys(sql, userId), 1)
})

t.test("creations racing with the user's deletion leave no usable key", async (t) => {
  const { token, userId } = await makeCaller(instance)
  const racing = Array.from({ length: 20 }, (_, i) => create(token, { name: `racing ${i}` }))
  await Promise.all([...racing.slice(0, 10), deleteUser(instance, userId), ...racing.slice(10)])
  for (const { status, body } of await Promise.all(racing)) {
    if (status !== 201) t.equal(status, 401)
    else t.equal((await instance.ask('GET', '/v1/verify', { token: body.plain_key })).status, 401)
  }
})
