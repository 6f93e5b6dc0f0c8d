// Every refusal is the same bytes and the same headers, whatever the reason and whatever was asked (spec 5.5, 7.2).
import t from 'tap'
import { deleteUser, makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { openDatabase } from './database.ts'
import { expectError, isRated } from './expect-error.ts'
import { sendBytes, sendRaw } from './raw-http.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const { port } = instance
const sql = openDatabase(t, services.databaseUrl)
const usable = await makeCaller(instance)
const reference = await sendRaw(port, 'GET', '/v1/verify')

t.test('the 401 without a header is as the contract has it', async (t) => {
  expectError(t, reference, 'unauthorized')
  const { message, suggestion } = reference.body.error
  t.match(message, /missing or invalid/)
  t.match(suggestion, 'Authorization: Bearer lk_...')
  t.match(suggestion, /active/)
})

const authorizations: Record<string, () => Promise<string[]>> = {
  missing_header: async () => [],
  wrong_scheme: async () => [`Basic ${usable.token}`],
  wrong_prefix: async () => [`Bearer sk_${usable.token.slice(3)}`],
  unknown_key: async () => [`Bearer lk_${'0'.repeat(38)}`],
  revoked: async () => {
    const { id, token } = await makeCaller(instance)
    await sql`update api_keys set revoked_at = now() where id = ${id}`
    return [`Bearer ${token}`]
  },
  expired: async () => [`Bearer ${(await makeCaller(instance, { expiresAt: 1_000_000_000 })).token}`],
  owner_deleted: async () => {
    const { token, userId } = await makeCaller(instance)
    await deleteUser(instance, userId)
    return [`Bearer ${token}`]
  },
  'two headers': async () => [`Bearer ${usable.token}`, `Bearer ${usable.token}`],
}
for (const [reason, values] of Object.entries(authorizations)) {
  t.test(`the 401 for ${reason} is byte for byte the one without a header`, async (t) => {
    const lines = (await values()).map((value) => `Authorization: ${value}`)
    for (const [method, path] of [
      ['GET', '/v1/verify'],
      ['DELETE', `/v1/keys/${usable.id}`],
    ] as const) {
      const answer = await sendRaw(port, method, path, lines)
      expectError(t, answer, 'unauthorized')
      t.equal(answer.uniform, reference.uniform)
    }
  })
}

t.test('a key that was used until it was revoked gets that same 401', async (t) => {
  const { id, token } = await makeCaller(instance)
  const lines = [`Authorization: Bearer ${token}`]
  t.equal((await sendRaw(port, 'GET', '/v1/verify', lines)).status, 200)
  await instance.ask('DELETE', `/v1/keys/${id}`, { token })
  t.equal((await sendRaw(port, 'GET', '/v1/verify', lines)).uniform, reference.uniform)
})

const json = 'Content-Type: application/json'
const asked: [what: string, method: string, target: string, headers?: string[], body?: string | Buffer][] = [
  ['the list', 'GET', '/v1/keys'],
  ['a key that exists', 'GET', `/v1/keys/${usable.id}`],
  ['a key that does not', 'GET', '/v1/keys/apk_0'],
  ['a creation', 'POST', '/v1/keys', [json], '{"name":"x"}'],
  ['malformed JSON', 'POST', '/v1/keys', [json], '{"name":'],
  ['an empty body', 'POST', '/v1/keys', [json]],
  ['a missing member', 'POST', '/v1/keys', [json], '{}'],
  ['invalid UTF-8', 'POST', '/v1/keys', [json], Buffer.from([0x22, 0xff, 0x22])],
  ['a body that is too large', 'POST', '/v1/keys', [json], ' '.repeat(20_000)],
  ['another media type', 'POST', '/v1/keys', ['Content-Type: text/plain'], 'name=x'],
  ['a content encoding', 'POST', '/v1/keys', [json, 'Content-Encoding: gzip'], 'x'],
  ['a change', 'PATCH', `/v1/keys/${usable.id}`, [json], '{"name":"x"}'],
  ['a bad query', 'GET', '/v1/keys?limit=0&nope=1'],
  ['an unknown route', 'GET', '/nope'],
  ['an unknown route under /v1', 'POST', '/v1/nope', [json], '{}'],
  ['a change of the root', 'POST', '/', [json], '{}'],
  ['a wrong method', 'PUT', '/v1/keys', [json], '{}'],
  ['a wrong method on a key', 'POST', `/v1/keys/${usable.id}`, [json], '{}'],
  ['OPTIONS', 'OPTIONS', '/v1/keys'],
  ['a method that no route knows', 'PURGE', '/v1/keys'],
  ['a malformed percent-escape', 'GET', '/v1/keys/%zz'],
  ['a malformed percent-escape elsewhere', 'GET', '/%'],
  ['an escaped NUL', 'GET', '/v1/keys/%00'],
  ['an over-long id', 'GET', `/v1/keys/${'a'.repeat(10_000)}`],
]
for (const [what, method, target, headers, body] of asked) {
  t.test(`asking for ${what} without a key is that same 401`, async (t) => {
    const answer = await sendRaw(port, method, target, headers, body)
    t.equal(answer.uniform, reference.uniform)
    t.notOk(isRated(answer))
  })
  t.test(`asking for ${what} with an unknown key is that same 401`, async (t) => {
    const lines = [`Authorization: Bearer lk_${'0'.repeat(38)}`, ...(headers ?? [])]
    t.equal((await sendRaw(port, method, target, lines, body)).uniform, reference.uniform)
  })
}

t.test('HEAD without a key has the headers of that same 401 and no body', async (t) => {
  const answer = await sendRaw(port, 'HEAD', '/v1/keys')
  const head = (raw: string) => raw.slice(0, raw.indexOf('\r\n\r\n'))
  t.equal(head(answer.uniform), head(reference.uniform))
  t.equal(answer.text, '')
})

t.test('a body sent in chunks without a key is that same 401', async (t) => {
  const head = 'POST /v1/keys HTTP/1.1\r\nHost: latchkey.test\r\nConnection: close\r\n'
  const bytes = `${head}${json}\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n${' '.repeat(0x5000)}\r\n0\r\n\r\n`
  t.equal((await sendBytes(port, bytes)).uniform, reference.uniform)
})

t.test('every refusal has a request id of its own and never the one sent', async (t) => {
  const ids = new Set<string>()
  for (let i = 0; i < 20; i++) {
    const answer = await sendRaw(port, 'GET', '/v1/verify', ['X-Request-Id: mine', 'Request-Id: mine'])
    t.not(answer.headers.get('x-request-id'), 'mine', "never the client's own")
    ids.add(answer.body.error.request_id)
  }
  t.equal(ids.size, 20)
})
