// The gateways of examples/ in front of a service: three instances decide who gets in, whatever
// becomes of them.
import { once } from 'node:events'
import { createServer, type IncomingMessage, request } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import { type AddressInfo, connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { Value } from '@sinclair/typebox/value'
import t from 'tap'
import { ErrorEnvelope } from '../../schemas/error.ts'
import { errorTable } from '../../schemas/error-table.ts'
import { expectError, expectRated } from '../api/expect-error.ts'
import { sendRaw } from '../api/raw-http.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { startLoad } from '../load.ts'
import { externalEnv, listening, type Serving, spawnLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { type LoadBalancer, useServices } from '../services/index.ts'
import { freePort } from '../services/ports.ts'
import { startGateway } from './gateways.ts'

/** What the examples say that a hung instance costs. */
const statedTimeoutMs = 2000

const services = await useServices(t)
const seeding = await startInstance(t, services)
const caller = await makeCaller(seeding)

/** The service behind: answers with what reached it. */
let served = 0
const service = createServer(async (request: IncomingMessage, response) => {
  served++
  const { method, url, headers } = request
  if (url === '/image')
    return response.writeHead(200, { 'content-type': 'image/png', 'cache-control': 'public' }).end()
  if (url === '/untyped') return response.end()
  response.setHeader('content-type', 'application/json')
  response.end(JSON.stringify({ method, url, headers, body: await text(request) }))
}).listen(0, '127.0.0.1')
service.on('upgrade', ({ headers }: IncomingMessage, socket) => {
  served++
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n')
  socket.write(`Upgrade: ${headers.upgrade}\r\n`)
  // The answer to the key of RFC 6455, 1.3.
  socket.write('Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n')
  socket.write(`X-Headers: ${JSON.stringify(headers)}\r\n\r\n`)
  socket.on('error', () => {}).pipe(socket)
})
/** What follows a CONNECT. The service answers it with 200. */
let tunnelled = ''
service.on('connect', (_request, socket, head) => {
  served++
  tunnelled += head
  socket
    .on('error', () => {})
    .on('data', (bytes) => {
      tunnelled += bytes
    })
  socket.write('HTTP/1.1 200 OK\r\n\r\n')
})
await once(service, 'listening')
t.teardown(() => service.close().closeAllConnections())

const instances: { port: number; opsPort: number }[] = []
for (let i = 0; i < 3; i++) instances.push({ port: await freePort(), opsPort: await freePort() })
const start = async ({ port, opsPort }: { port: number; opsPort: number }): Promise<Serving> => {
  const env = { PORT: `${port}`, OPS_PORT: `${opsPort}`, TRUST_PROXY: '127.0.0.1', DRAIN_SECONDS: '3' }
  const more = { ...env, BASE_URL: 'http://latchkey.test' }
  return listening(await spawnLatchkey(t, externalEnv(services, more), 'serve'))
}
const serving = await Promise.all(instances.map(start))

const gateways: (LoadBalancer & { name: string })[] = []
for (const name of ['nginx', 'haproxy', 'caddy'] as const) {
  const behind = { instances, servicePort: (service.address() as AddressInfo).port }
  const gateway = await startGateway(t, name, behind)
  if (gateway !== null) gateways.push({ name, ...gateway })
}
const bearer = (token: string) => `Authorization: Bearer ${token}`
/** How a service may read a hyphen: CGI, WSGI and PHP take an underscore, PHP a dot too. */
const hyphens = ['-', '_', '.']
/** lighttpd takes any other character that may be in a name (RFC 9110, 5.6.2). */
const odd = [..."!#$%&'*+^`|~"]
const forged = [
  ...hyphens.flatMap((a) => hyphens.map((b) => `X${a}Key${b}Id: apk_forged`)),
  ...hyphens.flatMap((a) => hyphens.map((b) => `X${a}User${b}Id: usr_forged`)),
  ...odd.flatMap((c) => [`X${c}Key-Id: apk_forged`, `X${c}Key${c}Id: apk_forged`]),
  ...odd.flatMap((c) => [`X${c}User-Id: usr_forged`, `X-User${c}Id: usr_forged`]),
  'X-Accel-Redirect: @admitted',
  // Names headers that end at the next hop (RFC 9110, 7.6.1).
  'Connection: X-Key-Id, X-User-Id, User-Agent',
]
const usable = async (port: number) =>
  (await sendRaw(port, 'GET', '/', [bearer(caller.token)])).status === 200

t.test('haproxy: an action that fails lets nobody in', async (t) => {
  // Without the headers that the action expects.
  let asked = 0
  const odd = createServer(({ url }, response) => {
    if (url !== '/readyz') asked++
    response.setHeader('content-type', 'application/json').end('{}')
  }).listen(0, '127.0.0.1')
  await once(odd, 'listening')
  t.teardown(() => odd.close().closeAllConnections())
  const { port } = odd.address() as AddressInfo
  const servicePort = (service.address() as AddressInfo).port
  const behind = { instances: Array(3).fill({ port, opsPort: port }), servicePort }
  const gateway = await startGateway(t, 'haproxy', behind)
  if (gateway === null) return
  const before = served
  const { status } = await sendRaw(gateway.port, 'GET', '/', [bearer(caller.token)])
  t.strictSame([status, served], [503, before])
  t.ok(asked > 0, 'the action was run')
})

for (const { name, url, port } of gateways) {
  t.test(`${name}: a good key passes, and the service learns whose it is`, async (t) => {
    await until('the gateway is ready', () => usable(port))
    const body = 'x'.repeat(100_000)
    const headers = [bearer(caller.token), 'Content-Type: text/plain', 'If-Match: "x"', ...forged]
    // As long as nginx takes it.
    const target = `/orders/7?a=1&b=%20&${'q'.repeat(8100)}`
    const answer = await sendRaw(port, 'POST', target, headers, body)
    t.equal(answer.status, 200)
    const expected = { 'x-key-id': caller.id, 'x-user-id': caller.userId, 'content-type': 'text/plain' }
    const { body: arrived, ...request } = answer.body
    t.match(request, { method: 'POST', url: target, headers: expected })
    t.notMatch(JSON.stringify(request.headers), /_forged/)
    t.notMatch(request.headers.connection, /-id/i)
    t.ok(arrived === body, 'the whole body')
    t.notOk('authorization' in request.headers, 'the key ends here')
    // Caddy gives headers of the response to the service only.
    if (name !== 'caddy')
      for (const header of ['limit', 'remaining', 'reset'])
        t.match(answer.headers.get(`x-ratelimit-${header}`), /^[0-9]+$/)
  })

  t.test(`${name}: the type and the caching of a response are the service's own`, async (t) => {
    const image = await sendRaw(port, 'GET', '/image', [bearer(caller.token)])
    t.equal(image.headers.get('content-type'), 'image/png')
    t.equal(image.headers.get('cache-control'), 'public')
    const untyped = await sendRaw(port, 'GET', '/untyped', [bearer(caller.token)])
    t.equal(untyped.status, 200)
    t.equal(untyped.headers.get('content-type'), null)
    t.equal(untyped.headers.get('cache-control'), null)
  })

  t.test(`${name}: a WebSocket needs a good key, and the service learns whose it is`, async (t) => {
    const upgrade = (headers: Record<string, string>) =>
      request({
        port,
        headers: {
          ...headers,
          connection: 'X-Key-Id, X-User-Id, Upgrade',
          upgrade: 'websocket',
          'sec-websocket-version': '13',
          'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
          'x-key-id': 'apk_forged',
        },
      }).end()
    const before = served
    const [refused] = await once(upgrade({}), 'response')
    t.equal(refused.resume().statusCode, 401)
    t.equal(served, before)

    const [answer, socket] = await once(upgrade({ authorization: `Bearer ${caller.token}` }), 'upgrade', {
      signal: AbortSignal.timeout(10_000),
    })
    t.teardown(() => socket.destroy())
    const arrived = JSON.parse(answer.headers['x-headers'])
    t.match(arrived, { 'x-key-id': caller.id, 'x-user-id': caller.userId, authorization: undefined })
    t.notMatch(arrived.connection, /-id/i)
    socket.write('both ways')
    t.equal(String((await once(socket, 'data'))[0]), 'both ways')
  })

  t.test(`${name}: nothing but a WebSocket becomes a tunnel, whatever the service would take`, async (t) => {
    for (const upgrades of [['h2c'], ['websocket', 'h2c'], ['h2c', 'websocket'], ['websocket, h2c']]) {
      const client = connect(port, '127.0.0.1')
      t.teardown(() => client.destroy())
      const headers = [
        bearer(caller.token),
        ...upgrades.map((to) => `Upgrade: ${to}`),
        'HTTP2-Settings: AAMAAABk',
      ]
      const connection = 'Connection: Upgrade, HTTP2-Settings'
      client.write(`GET /h2c HTTP/1.1\r\nHost: x\r\n${connection}\r\n${headers.join('\r\n')}\r\n\r\n`)
      const head = String((await once(client, 'data'))[0]).split('\r\n\r\n')[0]!
      const isTunnel = head.startsWith('HTTP/1.1 101 ')
      const to = /^upgrade: (.*)$/im.exec(head)?.[1]
      t.ok(!isTunnel || to === 'websocket', `${upgrades.join(' and ')}: ${head}`)
      if (upgrades[0] === 'h2c' && upgrades.length === 1) t.match(head, /^HTTP\/1.1 200 /, 'a plain request')
    }
  })

  t.test(`${name}: CONNECT opens no tunnel, in which no request would be checked or counted`, async (t) => {
    const before = served
    tunnelled = ''
    const hidden = `GET /hidden HTTP/1.1\r\nHost: x\r\n${forged.join('\r\n')}\r\n\r\n`
    const client = connect(port, '127.0.0.1')
    t.teardown(() => client.destroy())
    client.write(`CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n${bearer(caller.token)}\r\n\r\n${hidden}`)
    t.match(String((await once(client, 'data'))[0]), /^HTTP\/1.1 40[05] /)

    // The only one here that takes both versions on one port without TLS.
    if (name === 'haproxy') {
      const session = connectHttp2(url)
      t.teardown(() => session.destroy())
      const authorization = `Bearer ${caller.token}`
      const stream = session.request({ ':method': 'CONNECT', ':authority': 'x:80', authorization })
      stream.on('error', () => {}).end(hidden)
      const [answer] = await once(stream, 'response')
      t.equal(answer[':status'], 405)
    }
    t.strictSame([served - before, tunnelled], [0, ''])
  })

  t.test(`${name}: the service gets a Host, also from a client of HTTP/1.0`, async (t) => {
    const client = connect(port, '127.0.0.1')
    t.teardown(() => client.destroy())
    client.write(`GET /old HTTP/1.0\r\n${bearer(caller.token)}\r\n\r\n`)
    t.match(String((await once(client, 'data'))[0]), /^HTTP\/1.[01] 200 /)
  })

  if (name === 'haproxy')
    t.test('haproxy: the audit entry of a request without a path has its target', async (t) => {
      const { body } = await sendRaw(port, 'OPTIONS', '*', [])
      t.match(await seeding.service.stores.audit.find(body.error.request_id), [
        { method: 'OPTIONS', path: '*', details: { via: '/v1/verify' } },
      ])
    })

  t.test(`${name}: a refusal is Latchkey's own response, and is audited as what was asked for`, async (t) => {
    const before = served
    const original = ['X-Forwarded-Uri: /forged', 'X-Original-URI: /forged', 'X-Forwarded-For: 198.51.100.1']
    for (const key of [[], ['Authorization: Basic abc'], [bearer(`${caller.token}x`)]]) {
      const headers = [...key, ...forged, ...original, 'User-Agent: a client']
      const answer = await sendRaw(port, 'DELETE', '/orders/7?secret=1', headers, 'body')
      expectError(t, answer, 'unauthorized')
      t.equal(answer.headers.get('cache-control'), 'no-store')
      const [entry] = await seeding.service.stores.audit.find(answer.body.error.request_id)
      const asked = { method: 'DELETE', path: '/orders/7', ip: '127.0.0.1', user_agent: 'a client' }
      t.match(entry, { ...asked, details: { via: '/v1/verify' } })
    }
    const { body } = await sendRaw(port, 'GET', '/', [])
    const [unnamed] = await seeding.service.stores.audit.find(body.error.request_id)
    t.notOk(unnamed!.user_agent, 'not that of the gateway')
    const limited = await makeCaller(seeding, { rateLimitRpm: 1 })
    const answers = []
    for (let n = 0; n < 6; n++) answers.push(await sendRaw(port, 'PUT', '/', [bearer(limited.token)], 'x'))
    const over = answers.find(({ status }) => status === 429)!
    expectError(t, over, 'rate_limit_exceeded')
    expectRated(t, over)
    t.equal(over.headers.get('x-ratelimit-remaining'), '0')
    t.equal(served - before, answers.filter(({ status }) => status === 200).length)
  })
}

t.test('instances restarted in turn: no request fails', { skip: gateways.length === 0 }, async (t) => {
  const loads = gateways.flatMap(({ name, url }) =>
    ['GET', 'POST'].map((method) => {
      const json = method === 'POST' ? { some: 'body' } : undefined
      const load = { urls: [url], tokens: [caller.token], method, path: '/orders', perSecond: 5, json }
      return { name, method, load: startLoad(t, load) }
    }),
  )
  for (const [i, instance] of instances.entries()) {
    serving[i]!.kill('SIGTERM')
    t.equal((await serving[i]!.ended).code, 0)
    serving[i] = await start(instance)
  }
  for (const { name, method, load } of loads) {
    const samples = await load.stop()
    const failed = samples.filter(({ status }) => status !== 200)
    t.same(failed, [], `${samples.length} requests, ${method} through ${name}`)
  }
})

t.test('a hung instance costs at most the stated timeout', { skip: gateways.length === 0 }, async (t) => {
  const hung = serving[1]!
  hung.kill('SIGSTOP')
  for (const { name, port } of gateways) {
    for (let n = 0; n < 6; n++) {
      const startMs = performance.now()
      const { status } = await sendRaw(port, 'POST', '/', [bearer(caller.token)], 'body')
      t.equal(status, 200, `through ${name}`)
      const tookMs = performance.now() - startMs
      t.ok(tookMs < statedTimeoutMs * 2, `${Math.round(tookMs)} ms, on a busy machine`)
    }
  }
  hung.kill('SIGCONT')
})

t.test('no instance left: nobody gets in', { skip: gateways.length === 0 }, async (t) => {
  for (const one of serving) one.kill('SIGKILL')
  await Promise.all(serving.map(({ ended }) => ended))
  const before = served
  for (const { name, port } of gateways) {
    t.comment(name)
    const answer = await sendRaw(port, 'GET', '/orders', [bearer(caller.token), ...forged])
    t.equal(answer.status, 503)
    t.same([...Value.Errors(ErrorEnvelope, answer.body)], [], 'is an ErrorEnvelope')
    const { request_id, docs_url, ...error } = answer.body.error
    const { status, about, ...expected } = errorTable.service_unavailable
    t.same(error, { ...expected, code: 'service_unavailable', param: '' })
    t.match(request_id, /^[0-9a-f-]{32,36}$/, 'of the gateway')
    t.match(docs_url, /\/docs\/errors\/service_unavailable$/)
    t.equal(answer.headers.get('content-type'), 'application/json')
    t.equal(answer.headers.get('retry-after'), '1')
  }
  t.equal(served, before)
})
