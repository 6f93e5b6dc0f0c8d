// POST /v1/keys: what is created, and what the response says. Values are tested in values.test.ts.
import t from 'tap'
import { makeCaller, makeKey, startInstance, startOps } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { countKeys } from './count-keys.ts'
import { expectError, expectRated } from './expect-error.ts'
import { expectKey } from './expect-key.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
/** On a database of its own: its keys have another prefix. */
const configured = await startInstance(
  t,
  { ...services, databaseUrl: await services.createDatabase() },
  {
    ...{
      MAX_KEYS_PER_USER: '3',
      DEFAULT_RATE_LIMIT_RPM: '42',
      MAX_RATE_LIMIT_RPM: '100',
      KEY_PREFIX: 'acme',
    },
    OPS_TOKEN: 'ada:a-token-of-adas-own',
  },
)
const sql = openDatabase(t, services.databaseUrl)
const caller = await makeCaller(instance)
const { token } = caller
const nowS = () => Math.floor(Date.now() / 1000)

const create = (json: unknown) => instance.ask('POST', '/v1/keys', { token, json })

t.test('a creation with just a name is 201 and the whole key with its defaults', async (t) => {
  const beforeS = nowS()
  const created = await create({ name: 'first' })
  const { status, body } = created
  t.equal(status, 201)
  expectKey(t, body, { withSecret: true })
  expectRated(t, created)
  const defaults = { rate_limit_rpm: 1000, last_used_at: null, expires_at: null, revoked_at: null }
  t.match(body, { name: 'first', ...defaults })
  t.ok(body.created_at >= beforeS && body.created_at <= nowS(), 'created_at is Unix seconds of now')
  t.match(body.plain_key, /^lk_[0-9A-Za-z]{38}$/)
  t.equal(body.key_prefix, body.plain_key.slice(0, 10))

  const location = new URL(created.headers.get('location')!, 'http://latchkey.test')
  t.equal(location.pathname, `/v1/keys/${body.id}`)
  const { plain_key, ...key } = body
  t.same((await instance.ask('GET', location.pathname, { token })).body, key)
})

t.test('a created key works at once, on every instance, for its user and with its limit', async (t) => {
  const other = await startInstance(t, services)
  const wanted = { name: 'wanted', rate_limit_rpm: 7, expires_at: nowS() + 3600 }
  const { status, body } = await create(wanted)
  t.equal(status, 201)
  t.match(body, wanted)
  for (const { ask } of [other, instance]) {
    const used = await ask('GET', '/v1/verify', { token: body.plain_key })
    t.match(used.body, { key_id: body.id, user_id: caller.userId })
    t.equal(used.headers.get('x-ratelimit-limit'), '7')
  }
})

t.test('a key does not expire in the second in which it is created', async (t) => {
  const answer = await create({ name: 'x', expires_at: nowS() })
  expectError(t, answer, 'invalid_parameter', 'expires_at')
  const saidS = Number(/it is now (\d+)\./.exec(answer.body.error.suggestion)?.[1])
  t.ok(Math.abs(saidS - nowS()) <= 60, `${saidS} is now`)
})

t.test('no key is given a higher limit than the operator allows', async (t) => {
  const ops = await startOps(t, configured)
  const { token, userId, id } = await makeCaller(configured, { rateLimitRpm: 1000 })
  const answers = (rate_limit_rpm: number) => [
    configured.ask('POST', '/v1/keys', { token, json: { name: 'x', rate_limit_rpm } }),
    configured.ask('PATCH', `/v1/keys/${id}`, { token, json: { rate_limit_rpm } }),
    ops.ask('POST', '/admin/keys', {
      token: 'a-token-of-adas-own',
      json: { user_id: userId, name: 'x', rate_limit_rpm },
    }),
    ops.ask('PATCH', `/admin/keys/${id}`, { token: 'a-token-of-adas-own', json: { rate_limit_rpm } }),
  ]
  for (const answer of await Promise.all(answers(101))) {
    expectError(t, answer, 'invalid_parameter', 'rate_limit_rpm')
    t.match(answer.body.error.suggestion, /from 1 to 100,/)
  }
  const renamed = await configured.ask('PATCH', `/v1/keys/${id}`, { token, json: { name: 'renamed' } })
  t.match(renamed, { status: 200, body: { rate_limit_rpm: 1000 } }, 'an older limit stays')
  for (const { status, body } of await Promise.all(answers(100)))
    t.match([status, body.rate_limit_rpm], [/^20[01]$/, 100])
})

t.test('two creations with the same body are two keys with two secrets', async (t) => {
  const [one, two] = await Promise.all([create({ name: 'twin' }), create({ name: 'twin' })])
  t.not(one.body.id, two.body.id)
  t.not(one.body.plain_key, two.body.plain_key)
})

t.test('a name that contains an API key is 400, for a creation and a change', async (t) => {
  const { id, plain_key: secret } = (await create({ name: 'to be repeated' })).body
  const keys = await countKeys(sql)
  for (const name of [secret, `backup of ${secret}, old`, `lk_lk_${secret}x`]) {
    for (const answer of [
      await create({ name }),
      await instance.ask('PATCH', `/v1/keys/${id}`, { token, json: { name } }),
    ]) {
      expectError(t, answer, 'invalid_parameter', 'name')
      t.notOk(answer.text.includes(secret), 'and the error does not repeat it')
      t.match(answer.body.error.suggestion, /revoke it/)
    }
  }
  t.equal(await countKeys(sql), keys)
  const noKey = `${secret.slice(0, -1)}${secret.endsWith('0') ? '1' : '0'}`
  t.equal((await create({ name: noKey })).status, 201, 'a wrong checksum makes it no key')
})

t.test('the operator chooses the default limit and the prefix of keys', async (t) => {
  const { token } = await makeCaller(configured)
  const { body } = await configured.ask('POST', '/v1/keys', { token, json: { name: 'branded' } })
  t.equal(body.rate_limit_rpm, 42)
  t.match(body.plain_key, /^acme_[0-9A-Za-z]{38}$/)
  t.equal(body.key_prefix, body.plain_key.slice(0, 10))
  const refused = await configured.ask('GET', '/v1/verify')
  t.match(refused.body.error.suggestion, 'Authorization: Bearer acme_...')
})

t.test('a creation beyond MAX_KEYS_PER_USER is 409, and only usable keys count', async (t) => {
  const { token, userId } = await makeCaller(configured)
  const another = () => configured.ask('POST', '/v1/keys', { token, json: { name: 'another' } })
  await makeKey(configured, { userId, expiresAt: nowS() - 60 })
  const second = await another()
  t.equal((await another()).status, 201)
  const refused = await another()
  expectError(t, refused, 'key_limit_reached')
  expectRated(t, refused)
  await configured.ask('DELETE', `/v1/keys/${second.body.id}`, { token })
  t.equal((await another()).status, 201, 'the revoked key made room')
  const { data } = (await configured.ask('GET', '/v1/keys', { token })).body
  t.equal(data.length, 5)
})
