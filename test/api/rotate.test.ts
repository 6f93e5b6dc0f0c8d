// POST /v1/keys/{id}/rotate: the successor at once, and the old key until the end of its grace
// period, on every instance.
import t from 'tap'
import { type Ask, makeCaller, makeKey, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { type Code, expectError, expectRated } from './expect-error.ts'
import { expectKey } from './expect-key.ts'
import { sendBytes, sendRaw } from './raw-http.ts'

const services = await useServices(t)
const env = { MAX_KEYS_PER_USER: '40' }
const instance = await startInstance(t, services, env)
const other = await startInstance(t, services, env)
const sql = openDatabase(t, services.databaseUrl)
const admin = await makeCaller(instance)
const nowS = () => Math.floor(Date.now() / 1000)

const make = (more: object = {}) => makeKey(instance, { userId: admin.userId, ...more })
const rotate = (id: string, ask: Ask = {}, { ask: send } = instance) =>
  send('POST', `/v1/keys/${id}/rotate`, { token: admin.token, ...ask })
const get = async (id: string) => (await instance.ask('GET', `/v1/keys/${id}`, { token: admin.token })).body
const verify = (token: string) =>
  Promise.all([instance, other].map(async ({ ask }) => (await ask('GET', '/v1/verify', { token })).status))

t.test('the response is the successor with its secret, and the old key is refused everywhere', async (t) => {
  const { token, userId, ...old } = await make({ name: 'nightly', rateLimitRpm: 7, expiresAt: nowS() + 600 })
  t.same(await verify(token), [200, 200], 'it is cached')
  const answer = await rotate(old.id)
  t.same(await verify(token), [401, 401])
  t.equal(answer.status, 201)
  expectRated(t, answer)
  expectKey(t, answer.body, { withSecret: true })
  const { id, key_prefix, plain_key, created_at } = answer.body
  t.same(answer.body, { ...old, id, key_prefix, plain_key, created_at })
  t.not(id, old.id)
  t.equal(key_prefix, plain_key.slice(0, 10))
  t.equal(answer.headers.get('location'), `/v1/keys/${id}`)
  t.same(await verify(plain_key), [200, 200])
  t.type((await get(old.id)).revoked_at, 'number')
})

t.test(
  'within the grace period both keys work on every instance, and then the old one does not',
  async (t) => {
    const old = await make()
    t.same(await verify(old.token), [200, 200])
    const answer = await rotate(old.id, { json: { expires_in: 3600 } })
    const { plain_key } = answer.body
    t.equal(answer.body.expires_at, null)
    t.same(await verify(old.token), [200, 200])
    t.same(await verify(plain_key), [200, 200])
    const { expires_at, revoked_at } = await get(old.id)
    t.ok(expires_at >= nowS() + 3500 && expires_at <= nowS() + 3700)
    t.equal(revoked_at, null)
    // An hour later by the database's clock, which decides.
    await sql`update api_keys set expires_at = now(), version = version + 1 where id = ${old.id}`
    const late = await startInstance(t, services, env)
    t.equal((await late.ask('GET', '/v1/verify', { token: old.token })).status, 401)
    t.equal((await late.ask('GET', '/v1/verify', { token: plain_key })).status, 200)
  },
)

t.test('the keys have a limit each: the successor begins with none of it used', async (t) => {
  const old = await make({ rateLimitRpm: 2 })
  for (let n = 0; n < 3; n++) await verify(old.token)
  const { body } = await rotate(old.id, { json: { expires_in: 60 } })
  const { status, headers } = await other.ask('GET', '/v1/verify', { token: body.plain_key })
  t.equal(status, 200)
  t.equal(headers.get('x-ratelimit-remaining'), '1')
})

t.test('a key rotates itself', async (t) => {
  const own = await makeCaller(instance)
  const { status, body } = await rotate(own.id, { token: own.token })
  t.equal(status, 201)
  t.same(await verify(own.token), [401, 401])
  t.same(await verify(body.plain_key), [200, 200])
})

t.test(
  'of rotations at once on two instances one succeeds, and the others learn its successor',
  async (t) => {
    for (const json of [{}, { expires_in: 31_536_000 }]) {
      const { id } = await make()
      const answers = await Promise.all(
        Array.from({ length: 8 }, (_, n) => rotate(id, { json }, n % 2 ? instance : other)),
      )
      const made = answers.filter(({ status }) => status === 201)
      t.equal(made.length, 1)
      for (const answer of answers) {
        if (answer.status === 201) continue
        expectError(t, answer, 'key_already_rotated')
        t.match(answer.body.error.message, made[0]!.body.id)
      }
    }
  },
)

t.test('a key that is not active is 409', async (t) => {
  const revoked = await make()
  await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token: admin.token })
  for (const { id } of [revoked, await make({ expiresAt: nowS() - 60 })])
    expectError(t, await rotate(id), 'key_not_active', 'id')
})

t.test('a user at MAX_KEYS_PER_USER rotates all the same', async (t) => {
  const full = await startInstance(t, services, { MAX_KEYS_PER_USER: '1' })
  const own = await makeCaller(instance)
  const rotated = await rotate(own.id, { token: own.token, json: { expires_in: 60 } }, full)
  t.equal(rotated.status, 201)
  const token = rotated.body.plain_key
  const chained = await rotate(rotated.body.id, { token, json: { expires_in: 60 } }, full)
  expectError(t, chained, 'key_limit_reached', 'expires_in')
  t.match(chained.body.error.suggestion, /^Rotate without `expires_in`/)
  t.equal((await rotate(rotated.body.id, { token }, full)).status, 201)
})

const type = { 'content-type': 'application/json' }

t.test('an empty body is like none, whatever its type', async (t) => {
  const plain = { 'content-type': 'text/plain' }
  for (const ask of [{ headers: type, body: '' }, { headers: type }, { headers: plain, body: '' }, {}]) {
    const { status } = await rotate((await make()).id, ask)
    t.equal(status, 201)
  }
  // `fetch` always sends a length.
  const headers = [`Authorization: Bearer ${admin.token}`, 'Content-Type: text/plain']
  const path = `/v1/keys/${(await make()).id}/rotate`
  t.equal((await sendRaw(instance.port, 'POST', path, headers)).status, 201)
})

t.test('a body in chunks, which has no length, is read', async (t) => {
  const { id, token } = await make()
  const headers = [`Authorization: Bearer ${admin.token}`, 'Content-Type: application/json']
  const lines = [`POST /v1/keys/${id}/rotate HTTP/1.1`, 'Host: x', 'Connection: close', ...headers]
  const chunks = ['Transfer-Encoding: chunked', '', '11', '{"expires_in":600', '1', '}', '0', '', '']
  t.equal((await sendBytes(instance.port, [...lines, ...chunks].join('\r\n'))).status, 201)
  t.same(await verify(token), [200, 200], 'the old key still works')
})

const refused: [ask: Ask, code: Code, param?: string][] = [
  ...[-1, 1.5, '60', null, 31_536_001].map((expires_in): [Ask, Code, string] => [
    { json: { expires_in } },
    'invalid_parameter',
    'expires_in',
  ]),
  [{ json: { expires_at: 5 } }, 'unknown_parameter', 'expires_at'],
  [{ json: [] }, 'invalid_parameter'],
  [{ headers: type, body: '{"expires_in":60' }, 'invalid_json'],
  [{ headers: { 'content-type': 'text/plain' }, body: '60' }, 'unsupported_media_type'],
]

t.test('a bad body rotates nothing', async (t) => {
  const { id, token } = await make()
  for (const [ask, code, param] of refused) expectError(t, await rotate(id, ask), code, param)
  t.same(await verify(token), [200, 200])
})

t.test('a parameter in the query is refused, not ignored, by operations that take none', async (t) => {
  const { id, token } = await make()
  const asks = [
    ['POST', `${id}/rotate`],
    ['GET', id],
    ['PATCH', id],
    ['DELETE', id],
  ] as const
  for (const [method, path] of asks) {
    const json = method === 'PATCH' ? { name: 'x' } : undefined
    const answer = await instance.ask(method, `/v1/keys/${path}?expires_in=3600`, {
      token: admin.token,
      json,
    })
    expectError(t, answer, 'unknown_parameter', 'expires_in')
    t.equal(answer.body.error.suggestion, 'Remove it.')
  }
  t.same(await verify(token), [200, 200])
})
