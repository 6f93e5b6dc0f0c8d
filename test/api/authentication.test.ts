// Every refusal is the same 401, byte for byte; only the audit log says why. How a header is
// read is tested in test/plugins/authenticate.test.ts.
import t, { type Test } from 'tap'
import type { RefusalReason } from '../../schemas/refusal.ts'
import { deleteUser, makeCaller, makeKey, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { countKeys } from './count-keys.ts'
import { expectError } from './expect-error.ts'
import { type RawAnswer, sendBytes, sendRaw } from './raw-http.ts'

const services = await useServices(t)
const instance = await startInstance(t, services, { TRUST_PROXY: '1' })
const other = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl)
const usable = await makeCaller(instance)
const pastS = Math.floor(Date.now() / 1000) - 60

const verify = ({ token }: { token: string }, { port } = instance) =>
  sendRaw(port, 'GET', '/v1/verify', [`Authorization: Bearer ${token}`])
const reference = await sendRaw(instance.port, 'GET', '/v1/verify')

/**
 * The same 401 as without a header. Gives the one audit entry, which is there by the time the
 * client has its response.
 */
async function expectRefused(t: Test, answer: RawAnswer, reason: RefusalReason, what: string = reason) {
  t.equal(answer.uniform, reference.uniform, `${what}: the same bytes`)
  const entries = await instance.service.stores.audit.find(answer.body.error.request_id)
  t.match(entries, [{ id: /^aud_[0-9A-Za-z]+$/, reason, ip: '127.0.0.1' }], `${what}: the reason`)
  t.equal(entries.length, 1)
  return entries[0]!
}

t.test('the 401 says what to send, and its audit entry who asked', async (t) => {
  expectError(t, reference, 'unauthorized')
  const { message, suggestion } = reference.body.error
  t.match(message, /missing or invalid/)
  t.match(suggestion, 'Authorization: Bearer lk_...')
  t.match(suggestion, /active/)
  const answer = await sendRaw(instance.port, 'GET', '/v1/verify', ['User-Agent: curious/1.0'])
  const entry = await expectRefused(t, answer, 'missing_header')
  const client = { method: 'GET', path: '/v1/verify', user_agent: 'curious/1.0' }
  t.match(entry, { ...client, key_id: null, user_id: null })
})

t.test('a header that is not one usable key is that same 401', async (t) => {
  const { token } = usable
  const rest = token.slice(3)
  const lastDigit = token.endsWith('0') ? '1' : '0'
  const otherCase = rest.replace(/[A-Za-z]/g, (c) => (c < 'a' ? c.toLowerCase() : c.toUpperCase()))
  const refused: [reason: RefusalReason, ...headers: string[]][] = [
    ['wrong_scheme', `Basic ${Buffer.from(`${token}:`).toString('base64')}`],
    ['wrong_scheme', `bearer ${token}`],
    ['wrong_scheme', `Bearer ${token}`, `Bearer ${token}`],
    ['wrong_scheme', `Bearer ${token}`, 'Bearer lk_x'],
    ['wrong_prefix', `Bearer sk_${rest}`],
    ['wrong_prefix', `Bearer LK_${rest}`],
    ['unknown_key', 'Bearer lk_'],
    ['unknown_key', `Bearer ${token}0`],
    ['unknown_key', `Bearer ${token.slice(0, -1)}`],
    ['unknown_key', `Bearer ${token.slice(0, -1)}${lastDigit}`],
    ['unknown_key', `Bearer lk_${otherCase}`],
    ['unknown_key', `Bearer lk_${'0'.repeat(38)}`],
    ['unknown_key', `Bearer lk_${'9'.repeat(10_000)}`],
  ]
  for (const [reason, ...headers] of refused) {
    const lines = headers.map((value) => `Authorization: ${value}`)
    const answer = await sendRaw(instance.port, 'GET', '/v1/verify', lines)
    const entry = await expectRefused(t, answer, reason, headers.join().slice(0, 60))
    t.match(entry, { key_id: null, user_id: null })
  }
})

// Both are on one database, so only the secret makes the key unknown.
t.test('a key created under another HASH_SECRET is that same 401', async (t) => {
  const env = { HASH_SECRET: 'another environment, with a secret of its own', ACCEPT_NEW_HASH_SECRET: '1' }
  const elsewhere = await startInstance(t, services, env)
  const caller = await makeCaller(elsewhere)
  t.equal((await verify(caller, elsewhere)).status, 200)
  await expectRefused(t, await verify(caller), 'unknown_key')
})

t.test('a key that was used until it was revoked is that same 401', async (t) => {
  const key = await makeKey(instance, { userId: usable.userId })
  t.equal((await verify(key)).status, 200)
  await instance.ask('DELETE', `/v1/keys/${key.id}`, { token: usable.token })
  t.match(await expectRefused(t, await verify(key), 'revoked'), { key_id: key.id, user_id: key.userId })
})

t.test('every key of a deleted user is that same 401 on every instance that had it cached', async (t) => {
  const first = await makeCaller(instance)
  const second = await makeKey(instance, { userId: first.userId })
  for (const one of [instance, other]) t.equal((await verify(first, one)).status, 200)
  await deleteUser(instance, first.userId)
  for (const one of [other, instance]) {
    for (const key of [first, second]) {
      const entry = await expectRefused(t, await verify(key, one), 'owner_deleted')
      t.match(entry, { key_id: key.id, user_id: key.userId })
    }
  }
})

t.test('the reason is the first of revoked, expired and owner_deleted', async (t) => {
  const expired = await makeCaller(instance, { expiresAt: pastS })
  const entry = await expectRefused(t, await verify(expired), 'expired')
  t.match(entry, { key_id: expired.id, user_id: expired.userId })
  await deleteUser(instance, expired.userId)
  await expectRefused(t, await verify(expired), 'expired', 'expired, owner deleted')
  await sql`update api_keys set revoked_at = now() where id = ${expired.id}`
  await expectRefused(t, await verify(expired), 'revoked', 'all three')
})

const json = 'Content-Type: application/json'
const key = `/v1/keys/${usable.id}`
const requests: [method: string, target: string, headers?: string[], body?: string | Buffer][] = [
  ['GET', '/v1/keys'],
  ['GET', key],
  ['GET', '/v1/keys/apk_0'],
  ['POST', '/v1/keys', [json], '{"name":"x"}'],
  ['POST', '/v1/keys', [json], '{"name":'],
  ['POST', '/v1/keys', [json]],
  ['POST', '/v1/keys', [json], '{}'],
  ['POST', '/v1/keys', [json], Buffer.from([0x22, 0xff, 0x22])],
  ['POST', '/v1/keys', [json], ' '.repeat(20_000)],
  ['POST', '/v1/keys', ['Content-Type: text/plain'], 'name=x'],
  ['POST', '/v1/keys', [json, 'Content-Encoding: gzip'], 'x'],
  ['PATCH', key, [json], '{"name":"x"}'],
  ['DELETE', key],
  ['GET', '/v1/keys?limit=0&nope=1'],
  ['GET', '/nope'],
  ['POST', '/v1/nope', [json], '{}'],
  ['POST', '/', [json], '{}'],
  ['PUT', '/v1/keys', [json], '{}'],
  ['POST', key, [json], '{}'],
  ['OPTIONS', '/v1/keys'],
  ['PURGE', '/v1/keys'],
  ['GET', '/v1/keys/%zz'],
  ['GET', '/%'],
  ['GET', '/v1/keys/%00'],
  ['GET', `/v1/keys/${'a'.repeat(10_000)}`],
]

t.test('whatever is asked, without a usable key it is that same 401 and changes nothing', async (t) => {
  const state = async () => {
    const stored = await instance.service.stores.keys.get(usable.id, usable.userId)
    return { ...stored, lastUsedAt: null, keys: await countKeys(sql) }
  }
  const before = await state()
  for (const [method, target, headers = [], body] of requests) {
    for (const authorization of [[], [`Authorization: Bearer lk_${'0'.repeat(38)}`]]) {
      const answer = await sendRaw(instance.port, method, target, [...authorization, ...headers], body)
      t.equal(answer.uniform, reference.uniform, `${method} ${target.slice(0, 40)} ${authorization}`)
    }
  }
  const chunks = `${json}\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n${' '.repeat(0x5000)}\r\n0\r\n\r\n`
  const head = 'POST /v1/keys HTTP/1.1\r\nHost: latchkey.test\r\nConnection: close\r\n'
  t.equal((await sendBytes(instance.port, head + chunks)).uniform, reference.uniform, 'a body in chunks')
  const toHead = await sendRaw(instance.port, 'HEAD', '/v1/keys')
  t.equal(toHead.uniform, reference.uniform.slice(0, reference.uniform.indexOf('\r\n\r\n') + 4), 'HEAD')
  t.same(await state(), before)
})

t.test('each of many refusals at once has a request id and an audit entry of its own', async (t) => {
  const headers = { 'x-request-id': 'mine', 'request-id': 'mine' }
  const ask = (_: unknown, i: number) => instance.ask('GET', '/v1/verify', { token: `lk_${i}`, headers })
  const answers = await Promise.all(Array.from({ length: 100 }, ask))
  const ids = answers.map(({ body }) => body.error.request_id)
  t.equal(new Set(ids).size, 100)
  t.notOk(ids.includes('mine'), "never the client's own")
  const entries = await Promise.all(ids.map((id) => instance.service.stores.audit.find(id)))
  t.same(new Set(entries.map((found) => found.map(({ reason }) => reason).join())), new Set(['unknown_key']))
})

t.test(
  'behind a trusted proxy the audit entry has the address that the proxy gives, if it is one',
  async (t) => {
    const auditedIp = async (forwardedFor: string, { ask } = instance) => {
      const answer = await ask('GET', '/v1/verify', { headers: { 'x-forwarded-for': forwardedFor } })
      return (await instance.service.stores.audit.find(answer.body.error.request_id))[0]!.ip
    }
    t.equal(await auditedIp('203.0.113.7'), '203.0.113.7')
    t.equal(await auditedIp('198.51.100.1, 203.0.113.7'), '203.0.113.7', 'not what the client itself wrote')
    t.equal(await auditedIp('fe80::1%eth0'), 'fe80::1%eth0')
    t.equal(await auditedIp('203.0.113.7:443'), '203.0.113.7', 'some proxies write the port, too')
    t.equal(await auditedIp('[2001:db8::7]:443'), '2001:db8::7')
    t.equal(await auditedIp('[2001:db8::7]'), '2001:db8::7')
    const byAddress = await startInstance(t, services, { TRUST_PROXY: 'loopback,198.51.100.1,2001:db8::1' })
    for (const proxy of ['198.51.100.1:80', '[2001:db8::1]:80'])
      t.equal(await auditedIp(`203.0.113.7:443, ${proxy}`, byAddress), '203.0.113.7')
    for (const none of [
      'nobody',
      '203.0.113.7:',
      '203.0.113.7:443:1',
      '[203.0.113.7',
      `fe80::1%${'a'.repeat(5000)}`,
    ]) {
      t.equal(await auditedIp(none), '127.0.0.1')
    }
  },
)
