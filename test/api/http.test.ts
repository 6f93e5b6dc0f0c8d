// Requests at the edges of HTTP/1.1, as bytes that no client library would send. What the parser refuses is tested in
// test/plugins/errors-of-the-parser.test.ts.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, isRated } from './expect-error.ts'
import { sendBytes, sendRaw } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const { port } = instance
const { token } = await makeCaller(instance)
const authorization = `Authorization: Bearer ${token}`
const host = 'Host: latchkey.test'
const send = (...lines: string[]) => sendBytes(port, lines.join('\r\n'))

t.test('a request that is not HTTP is 400 without a byte of it, and ends the connection', async (t) => {
  const answer = await send(
    'GET /v1/verify HTTP/1.1',
    host,
    authorization,
    'X-Marked: marked\0marked',
    '',
    '',
  )
  expectError(t, answer, 'bad_request')
  t.notOk(isRated(answer))
  t.equal(answer.headers.get('connection'), 'close')
  t.notMatch(answer.raw, /marked/i)
  t.notMatch(answer.raw, token)
})

t.test('a line and headers of more than 16 KiB are 431', async (t) => {
  for (const [path, header] of [
    ['/v1/verify', `X-A: ${'a'.repeat(17_000)}`],
    [`/v1/keys/${'a'.repeat(17_000)}`, 'X-A: a'],
  ]) {
    expectError(t, await sendRaw(port, 'GET', path!, [authorization, header!]), 'headers_too_large')
  }
})

// RFC 9112, 3.2.2: a server must accept the absolute form, although only proxies are sent it.
t.test('a target in absolute form is the route that it names', async (t) => {
  const target = 'http://latchkey.test/v1/verify'
  t.equal((await sendRaw(port, 'GET', target, [authorization])).status, 200)
  expectError(t, await sendRaw(port, 'GET', target), 'unauthorized')
  const unknown = await sendRaw(port, 'GET', 'http://latchkey.test/nope', [authorization])
  expectError(t, unknown, 'route_not_found')
})

t.test('OPTIONS * is an unknown route', async (t) => {
  expectError(t, await sendRaw(port, 'OPTIONS', '*', [authorization]), 'route_not_found')
})

t.test('an unknown expectation and an offer to upgrade are ignored', async (t) => {
  t.equal((await sendRaw(port, 'GET', '/v1/verify', [authorization, 'Expect: x'])).status, 200)
  expectError(t, await sendRaw(port, 'GET', '/v1/verify', ['Expect: x']), 'unauthorized')
  const offer = ['Connection: Upgrade, close', 'Upgrade: websocket', '', '']
  t.equal((await send('GET /v1/verify HTTP/1.1', host, authorization, ...offer)).status, 200)
})

t.test('a client that waits for 100 Continue gets it', async (t) => {
  const headers = [authorization, 'Content-Type: application/json', 'Expect: 100-continue']
  const { raw } = await sendRaw(port, 'POST', '/v1/keys', headers, '{"name":"continued"}')
  t.match(raw, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 201 /)
})

t.test('a request whose head or body stops arriving is 408', async (t) => {
  const { server } = instance.service.app
  t.ok(server.headersTimeout > 0 && server.headersTimeout <= 60_000)
  t.ok(server.requestTimeout > 0 && server.requestTimeout <= 120_000)
  server.headersTimeout = 200
  server.requestTimeout = 400
  const begin = ['POST /v1/keys HTTP/1.1', host, 'Content-Type: application/json']
  for (const rest of [
    ['X-Never'],
    [authorization, 'Content-Length: 100', '', '{"name":'],
    [authorization, 'Transfer-Encoding: chunked', '', '2', '{}', ''],
  ]) {
    const answer = await send(...begin, ...rest)
    expectError(t, answer, 'request_timeout')
    t.equal(answer.headers.get('connection'), 'close')
  }
})

t.test('the service finds no fault of its own in any of that', async (t) => {
  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200)
  t.same(
    instance.log.filter(({ level }) => Number(level) >= 50),
    [],
  )
})
