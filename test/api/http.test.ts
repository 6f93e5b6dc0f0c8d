// Requests at the edges of HTTP/1.1, as bytes that no client library would send. What the parser
// refuses is tested in test/plugins/errors-of-the-parser.test.ts and
// test/security/hostile-bytes.test.ts.
import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { serverOptions } from '../../src/http/server-options.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError } from './expect-error.ts'
import { sendBytes, sendRaw } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const { port } = instance
const { token } = await makeCaller(instance)
const authorization = `Authorization: Bearer ${token}`
const host = 'Host: latchkey.test'
const send = (...lines: string[]) => sendBytes(port, lines.join('\r\n'))

// RFC 9112, 3.2.2: a server must accept the absolute form, although only proxies are sent it.
t.test('a target in absolute form is the route that it names', async (t) => {
  const target = 'http://latchkey.test/v1/verify'
  for (const one of [target, 'HTTPS://latchkey.test/v1/verify'])
    t.equal((await sendRaw(port, 'GET', one, [authorization])).status, 200)
  expectError(t, await sendRaw(port, 'GET', target), 'unauthorized')
  const unknown = await sendRaw(port, 'GET', 'http://latchkey.test/nope', [authorization])
  expectError(t, unknown, 'route_not_found')
})

t.test('OPTIONS * is an unknown route', async (t) => {
  expectError(t, await sendRaw(port, 'OPTIONS', '*', [authorization]), 'route_not_found')
})

t.test('an unknown expectation does not replace a key', async (t) => {
  expectError(t, await sendRaw(port, 'GET', '/v1/verify', ['Expect: x']), 'unauthorized')
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
  t.same([server.headersTimeout, server.requestTimeout], [10_000, 20_000], 'as docs/operations.md says')
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
  const metrics = await instance.service.metrics.registry.metrics()
  t.match(metrics, 'latchkey_requests_total{status="408"} 3\n', 'each is counted')

  const unused = connect(port, '127.0.0.1')
  const [received] = await once(
    unused.resume().on('data', () => t.fail('nobody asked')),
    'close',
  )
  t.equal(received, false, 'a connection without a request is closed without an answer')
})

t.test('none of these requests is logged as a fault of the service', async (t) => {
  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200)
  t.same(
    instance.log.filter(({ level }) => Number(level) >= 50),
    [],
  )
})

t.test('an idle connection outlives the 60 s of a load balancer, and a late one is found soon', async (t) => {
  t.ok(instance.service.app.server.keepAliveTimeout > 60_000)
  t.equal(instance.service.app.server.keepAliveTimeout, 75_000, 'as docs/operations.md says')
  t.ok(serverOptions(() => '').http.connectionsCheckingInterval <= 100, 'ms')
})
