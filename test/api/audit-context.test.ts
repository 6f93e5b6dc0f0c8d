// What the audit entry of a refusal says about the request: what a trusted gateway was asked for,
// and whose key it may have been.
import t from 'tap'
import { type Ask, type Instance, makeCaller, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { resetWhileLookedUp } from './reset.ts'

const services = await useServices(t)
const behindProxy = await startInstance(t, services, { TRUST_PROXY: '1' })
const { mint } = behindProxy.service.stores.tokenFormat

const entryOf = async ({ ask, service }: Instance, method: string, path: string, more: Ask) => {
  const { body } = await ask(method, path, more)
  const [entry] = await service.stores.audit.find(body.error.request_id)
  return entry!
}
const forwarded = (headers: Record<string, string>, path = '/v1/verify', instance = behindProxy) =>
  entryOf(instance, 'GET', path, { headers: { 'x-forwarded-for': '203.0.113.7', ...headers } })

const direct = { method: 'GET', path: '/v1/verify', details: null }

t.test('behind a trusted gateway the entry has the method and path that its client sent', async (t) => {
  const uri = '/orders/7?secret=1'
  const details = { via: /^\/v1\/verify$/ }
  const expected = { method: 'PATCH', path: '/orders/7', details, ip: '203.0.113.7' }
  const patch = { 'x-forwarded-method': 'PATCH', 'x-forwarded-uri': uri }
  t.match(await forwarded(patch, '/v1/verify?secret=1'), expected)
  t.match(await forwarded({ 'x-original-method': 'PATCH', 'x-original-uri': uri }), expected)
  const both = { 'x-original-method': 'GET', 'x-original-uri': '/forged' }
  t.match(await forwarded({ 'x-forwarded-method': 'PATCH', 'x-forwarded-uri': uri, ...both }), expected)
  t.match(await forwarded({ 'x-forwarded-uri': uri }), { ...expected, method: 'GET' })
  const byAddress = await startInstance(t, services, { TRUST_PROXY: 'loopback' })
  const headers = { 'x-original-method': 'PATCH', 'x-original-uri': uri }
  for (const instance of [behindProxy, byAddress]) {
    const nameless = await entryOf(instance, 'GET', '/v1/verify', { headers })
    t.match(nameless, { ...expected, ip: '127.0.0.1' }, 'also if the gateway does not name its client')
  }
})

t.test('what a gateway says of the original request is bounded, and without keys', async (t) => {
  const long = await forwarded({
    'x-forwarded-method': 'A'.repeat(5000),
    'x-forwarded-uri': `/${'a'.repeat(5000)}`,
  })
  t.equal(long.method, 'A'.repeat(32))
  t.equal(long.path, `/${'a'.repeat(511)}`)
  const key = mint()
  const misplaced = await forwarded({ 'x-forwarded-uri': `/orders/${key}/x`, 'x-forwarded-method': key })
  t.match(misplaced, { path: '/orders/lk_[redacted]/x', method: 'lk_[redacted]' })
  const cut = await forwarded({ 'x-forwarded-uri': `/${'-'.repeat(500)}/${key.slice(3)}` })
  t.notMatch(cut.path, key.slice(3, 10), 'nor a part of one where the path is cut')
})

t.test('nobody but a trusted gateway can make up what the entry says', async (t) => {
  const headers = { 'x-forwarded-method': 'PATCH', 'x-forwarded-uri': '/forged' }
  const exposed = await startInstance(t, services)
  const elsewhere = await startInstance(t, services, { TRUST_PROXY: '192.0.2.0/24' })
  for (const instance of [exposed, elsewhere])
    t.match(await forwarded(headers, '/v1/verify', instance), { ...direct, ip: '127.0.0.1' })
  const plain = await forwarded(headers, '/v1/keys')
  t.match(
    plain,
    { method: 'GET', path: '/v1/keys', details: null },
    'not on a route that a plain proxy passes on',
  )
})

t.test('a token of our shape leaves its display prefix, and any other nothing', async (t) => {
  const entry = (authorization: string) => forwarded({ authorization })
  const unknown = mint()
  const found = await entry(`Bearer ${unknown}`)
  t.match(found, { reason: 'unknown_key', key_id: null, details: { key_prefix: unknown.slice(0, 10) } })
  t.notMatch(JSON.stringify(found), unknown.slice(0, 11))
  const revoked = await makeCaller(behindProxy)
  await behindProxy.ask('DELETE', `/v1/keys/${revoked.id}`, { token: revoked.token })
  const known = { reason: 'revoked', key_id: revoked.id, details: { key_prefix: revoked.key_prefix } }
  t.match(await entry(`Bearer ${revoked.token}`), known)
  const mistyped = unknown.slice(0, -1) + (unknown.endsWith('0') ? '1' : '0')
  t.match(await entry(`Bearer ${mistyped}`), { details: { key_prefix: unknown.slice(0, 10) } })
  const almost = [unknown.slice(0, -1), `${unknown}x`, `${unknown.slice(0, -1)}-`]
  for (const other of [...almost, unknown.replace('lk_', 'sk_'), `${unknown} ${unknown}`])
    t.match(await entry(`Bearer ${other}`), { details: null }, other)
})

t.test('a client that resets its connection has its address in the entry', async (t) => {
  const sql = openDatabase(t, services.databaseUrl, 3)
  const headers = { 'x-forwarded-for': '203.0.113.7' }
  for (const [TRUST_PROXY, ip] of [
    ['false', '127.0.0.1'],
    ['1', '203.0.113.7'],
    ['loopback', '203.0.113.7'],
    ['192.0.2.0/24', '127.0.0.1'],
  ] as const) {
    const { service } = await startInstance(t, services, { TRUST_PROXY })
    const path = `/trusts/${TRUST_PROXY}`
    const entry = await resetWhileLookedUp(sql, service.app.server, { path, headers })
    t.match(entry, { reason: 'unknown_key', ip })
  }
})

t.test('a client whose address is unknown is recorded without one', async (t) => {
  for (const TRUST_PROXY of ['false', 'loopback']) {
    const instance = await startInstance(t, services, { TRUST_PROXY })
    // As when the connection is reset before it is accepted.
    instance.service.app.server.prependListener('connection', (socket) =>
      Object.defineProperty(socket, 'remoteAddress', { value: undefined }),
    )
    t.match(await forwarded({}, '/v1/verify', instance), { reason: 'missing_header', ip: null })
  }
})
