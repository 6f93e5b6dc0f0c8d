// The plugin and the guard keep the promises inside an application of somebody else, alone and
// beside the service.
import { AsyncLocalStorage } from 'node:async_hooks'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect, constants } from 'node:http2'
import Fastify, { type FastifyInstance, type FastifyServerOptions } from 'fastify'
import t, { type Test } from 'tap'
import type { Sent } from '../../src/http/routes/actor.ts'
import latchkey from '../../src/package/fastify.ts'
import { createGuard, type Guard, type Refused, rememberAddresses } from '../../src/package/guard.ts'
import { configOf, type LatchkeyOptions } from '../../src/package/options.ts'
import { resetWhileLookedUp } from '../api/reset.ts'
import { hashSecret, makeCaller, startInstance } from '../instance.ts'
import { envelopeOf } from '../plugins/other-app.ts'
import { lockWaitOf } from '../process/held-at-start.ts'
import { until } from '../process/until.ts'
import { openDatabase, startTcpProxy, useServices } from '../services/index.ts'
import { watchTimers } from '../timers.ts'

const services = await useServices(t)
const options: LatchkeyOptions = {
  databaseUrl: services.databaseUrl,
  redisUrl: services.redisUrl ?? undefined,
  hashSecret,
  patience: 20,
}
const sql = openDatabase(t, services.databaseUrl, 3)

// Registered first, so closed last: the key that all tests use.
const service = await startInstance(t, services)

const application = (t: Test, more: FastifyServerOptions = {}): FastifyInstance => {
  const app = Fastify({ genReqId: () => 'the application’s own', ...more })
  t.teardown(() => app.close())
  app.setErrorHandler((error: Error, _request, reply) => reply.code(418).send({ mine: error.message }))
  return app
}

async function guardOf(t: Test, more: Partial<LatchkeyOptions> = {}): Promise<Guard> {
  const guard = await createGuard({ ...options, ...more })
  t.teardown(guard.close)
  return guard
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

const recorded = (requestId: unknown) =>
  sql`select reason, method, path, ip, user_agent, details from audit_log where request_id = ${String(requestId)}`

t.test(
  'a refusal that an application makes impossible to send is its fault, and holds up no other request',
  async (t) => {
    const app = Fastify()
    t.teardown(() => app.close())
    app.addHook('onRequest', async (request, reply) => {
      const { trace } = request.query as { trace?: string }
      if (trace !== undefined) reply.header('x-trace', trace)
    })
    await app.register(latchkey, options)
    app.get('/', async () => 'hello')
    const url = await app.listen()
    const status = async (path: string, token?: string) =>
      (await fetch(url + path, { headers: token === undefined ? {} : bearer(token) })).status
    const [{ token }, spent] = [await makeCaller(service), await makeCaller(service, { rateLimitRpm: 1 })]
    const unsendable = `/?trace=${encodeURIComponent('\u{1F600}')}`
    t.equal(await status(unsendable), 500)
    // More than there may be calls in flight.
    for (let i = 0; i < 30; i++) await status(unsendable, spent.token)
    t.equal(await status('/', token), 200)
  },
)

t.test('the plugin guards every route and unknown ones, and leaves errors to the application', async (t) => {
  const app = application(t)
  await app.register(latchkey, { ...options, prefix: '/', logLevel: 'warn', logSerializers: {} })
  t.ok(app.hasPlugin('latchkey'))
  app.get('/hello', async (request) => request.caller)
  app.get('/fault', async () => Promise.reject(new Error('fault')))
  const { id, userId, token } = await makeCaller(service, { rateLimitRpm: 1000 })

  const hello = await app.inject({ url: '/hello', headers: bearer(token) })
  t.strictSame(
    hello.json(),
    { id, userId, rateLimitRpm: 1000, expiresAt: null },
    'and nothing else of the key',
  )
  t.match(hello.headers, {
    'x-ratelimit-limit': 1000,
    'x-ratelimit-remaining': /^\d+$/,
  })
  const resetsInS = Number(hello.headers['x-ratelimit-reset']) - Date.now() / 1000
  t.ok(resetsInS > -10 && resetsInS <= 70, `${resetsInS} s`)
  const fault = await app.inject({ url: '/fault', headers: bearer(token) })
  t.strictSame([fault.statusCode, fault.json()], [418, { mine: 'fault' }])
  const nowhere = async () => app.inject({ url: '/nowhere', headers: bearer(token) })
  const [one, two] = [await nowhere(), await nowhere()]
  t.strictSame([one.statusCode, two.statusCode], [404, 404])
  const [left, leftThen] = [one, two].map(({ headers }) => Number(headers['x-ratelimit-remaining']))
  // The count starts again if the minute turns.
  t.ok(leftThen === left! - 1 || leftThen === 999, 'an unknown route counts')

  t.match(await app.latchkey.metrics(), /^latchkey_requests_total\{status="401"\} 0$/m)
  for (const url of ['/hello?x=1', '/nowhere?x=1']) {
    const refused = await app.inject({
      url,
      headers: { ...bearer('lk_x'), 'user-agent': 'ua', 'x-request-id': 'mine' },
    })
    const requestId = refused.headers['x-request-id']
    t.equal(refused.statusCode, 401)
    t.match(envelopeOf(refused.body), {
      code: 'unauthorized',
      request_id: requestId,
      docs_url: /docs\/package\.md#unauthorized$/,
    })
    t.match(requestId, /^req_/)
    t.match(refused.headers, {
      'content-type': 'application/json; charset=utf-8',
      'www-authenticate': 'Bearer realm="latchkey"',
      'cache-control': 'no-store',
    })
    t.notOk(Object.keys(refused.headers).some((name) => name.startsWith('x-ratelimit')))
    t.match(await recorded(requestId), [
      { reason: 'unknown_key', method: 'GET', path: url.slice(0, -4), ip: '127.0.0.1', user_agent: 'ua' },
    ])
  }
  t.match(await app.latchkey.metrics(), /^latchkey_requests_total\{status="401"\} 2$/m)
})

t.test('the application goes on in the async context of its own request', async (t) => {
  const app = application(t)
  const context = new AsyncLocalStorage<unknown>()
  app.addHook('onRequest', (request, _reply, done) => context.run(request, done))
  await app.register(latchkey, options)
  app.get('/', async (request) => context.getStore() === request)
  const callers = await Promise.all(Array.from({ length: 5 }, () => makeCaller(service)))
  // First each key is looked up, then all hits of a turn are counted together.
  for (const round of ['looked up', 'cached']) {
    const answers = callers.flatMap(({ token }) =>
      Array.from({ length: 4 }, () => app.inject({ url: '/', headers: bearer(token) })),
    )
    t.strictSame(
      (await Promise.all(answers)).map(({ body }) => body),
      Array(20).fill('true'),
      round,
    )
  }
})

t.test('under a prefix, unknown routes are guarded too, and everything else is open', async (t) => {
  const app = application(t)
  app.get('/open', async () => 'open')
  await app.register(
    async (scope) => {
      await scope.register(latchkey, options)
      scope.get('/closed', async () => 'closed')
    },
    { prefix: '/api' },
  )
  await app.register(
    async (scope) => {
      scope.setNotFoundHandler((_request, reply) => reply.code(404).send('mine'))
      await scope.register(latchkey, options)
    },
    { prefix: '/own' },
  )
  for (const path of ['/one', '/two'])
    await app.register(
      async (scope) => {
        await scope.register(latchkey, options)
        scope.get(path, async () => path)
      },
      { prefix: '/shared' },
    )
  await app.register(
    async (scope) => {
      scope.setNotFoundHandler((_request, reply) => reply.code(404).send('not ours'))
    },
    { prefix: '/half' },
  )
  await app.register(
    async (scope) => {
      await scope.register(latchkey, { ...options, unknownRoutes: false })
      scope.get('/closed', async () => 'closed')
    },
    { prefix: '/half' },
  )
  const { token } = await makeCaller(service)
  const status = async (url: string) => (await app.inject({ url })).statusCode
  t.same(
    await Promise.all(['/open', '/nowhere', '/api/closed', '/api/nowhere', '/own/nowhere'].map(status)),
    [200, 404, 401, 401, 401],
  )
  t.same(
    await Promise.all(['/half/closed', '/shared/one', '/shared/two', '/shared/nowhere'].map(status)),
    [401, 401, 401, 401],
  )
  t.equal((await app.inject({ url: '/half/nowhere' })).body, 'not ours')
  t.equal((await app.inject({ url: '/own/nowhere', headers: bearer(token) })).body, 'mine')
})

t.test('a client that resets its connection has its address in the audit log', async (t) => {
  const app = application(t)
  await app.register(latchkey, options)
  await app.listen({ host: '127.0.0.1', port: 0 })
  const entry = await resetWhileLookedUp(sql, app.server, { path: '/reset' })
  t.match(entry, { reason: 'unknown_key', ip: '127.0.0.1' })
})

t.test('a server of node:http that remembers addresses has that of such a client too', async (t) => {
  const guard = await guardOf(t)
  const server = createServer(async ({ url, socket, headers }, response) => {
    const result = await guard.check(headers.authorization, { path: url, ip: socket.remoteAddress })
    response.end(String(result.ok))
  })
  rememberAddresses(server)
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => server.close())
  t.match(await resetWhileLookedUp(sql, server, { path: '/reset-guard' }), { ip: '127.0.0.1' })
})

t.test('a client that cancels its stream of HTTP/2 has its address in the audit log', async (t) => {
  const app = Fastify({ http2: true })
  t.teardown(() => app.close())
  await app.register(latchkey, options)
  const client = connect(await app.listen({ host: '127.0.0.1', port: 0 }))
  t.teardown(() => client.destroy())
  await sql.begin(async (tx) => {
    await tx`lock table api_keys`
    const accepted = once(app.server, 'stream')
    const sent = client.request({ ':path': '/cancelled', ...bearer('lk_x') })
    sent.on('error', () => {})
    const [stream] = await accepted
    const closed = once(stream, 'close')
    await lockWaitOf(sql, '%key_hash >= asked.hash%')
    sent.close(constants.NGHTTP2_CANCEL)
    await closed
  })
  const found = () => sql`select ip, reason from audit_log where path = '/cancelled'`
  await until('it is in the audit log', async () => (await found()).length > 0)
  t.match(await found(), [{ reason: 'unknown_key', ip: '127.0.0.1' }])
})

t.test('a refusal is the envelope even if the application has a serializer of its own', async (t) => {
  const app = application(t)
  app.addHook('onRequest', async (_request, reply) => {
    reply.serializer((body) => JSON.stringify({ wrapped: body }))
  })
  await app.register(latchkey, options)
  app.get('/', async () => 'hello')
  t.match(envelopeOf((await app.inject('/')).body), { code: 'unauthorized' })
})

t.test('a scope has one registration', async (t) => {
  const app = application(t)
  await app.register(latchkey, options)
  await t.rejects(
    async () => app.register(async (scope) => scope.register(latchkey, options)),
    /^latchkey: .* register it once/,
  )
  const own = application(t)
  own.decorateRequest('caller', null)
  await t.rejects(async () => own.register(latchkey, options), /request.caller already/)
})

t.test('at the root, the application may still set its own 404', async (t) => {
  const app = application(t)
  const callers: unknown[] = []
  app.addHook('onRequest', async ({ caller }) => void callers.push(caller))
  await app.register(latchkey, options)
  app.setNotFoundHandler((_request, reply) => reply.code(404).send('mine'))
  const { token } = await makeCaller(service)
  t.equal((await app.inject({ url: '/nowhere', headers: bearer(token) })).body, 'mine')
  t.strictSame(callers, [null], 'nobody before it is known who calls')
})

t.test('applications and the service count together, and a revocation holds in all at once', async (t) => {
  if (services.redisUrl === null) return void t.pass({ skip: 'Redis is emulated inside the service' })
  const app = application(t)
  await app.register(latchkey, options)
  app.get('/', async () => 'in')
  const guard = await guardOf(t)
  const everywhere = (token: string) => [
    async () => (await app.inject({ url: '/', headers: bearer(token) })).statusCode,
    async () => statusOf(await guard.check(`Bearer ${token}`)),
    async () => (await service.ask('GET', '/v1/verify', { token })).status,
  ]
  const minute = () => Math.floor(Date.now() / 60_000)
  for (let before = -1; before !== minute(); ) {
    before = minute()
    const { token } = await makeCaller(service, { rateLimitRpm: 100 })
    const asks = Array.from({ length: 60 }, () => everywhere(token)).flat()
    const answers = await Promise.all(asks.map((ask) => ask()))
    if (before !== minute()) continue
    t.equal(answers.filter((status) => status === 200).length, 100)
    t.equal(answers.filter((status) => status === 429).length, 80)
  }
  const { id, token } = await makeCaller(service)
  for (const ask of everywhere(token)) t.equal(await ask(), 200, 'cached everywhere')
  t.equal((await service.ask('DELETE', `/v1/keys/${id}`, { token })).status, 200)
  for (const ask of everywhere(token)) t.equal(await ask(), 401)
})

const statusOf = (result: Awaited<ReturnType<Guard['check']>>) => (result.ok ? 200 : result.status)

t.test('the guard says who calls, and what to answer to everybody else', async (t) => {
  const guard = await guardOf(t, { baseUrl: 'https://keys.example/' })
  const { id, userId, token } = await makeCaller(service, { rateLimitRpm: 1 })
  const check = () => guard.check([`Bearer ${token}`])
  const passed = await check()
  if (!passed.ok) throw new Error(passed.body)
  t.strictSame(passed.caller, { id, userId, rateLimitRpm: 1, expiresAt: null })
  t.match(passed, { limit: 1, remaining: 0, headers: { 'x-ratelimit-reset': String(passed.resetAtS) } })

  // If the minute turns in between, the second one passes too.
  const over = [await check(), await check()].find(({ ok }) => !ok) as Refused
  t.equal(over.status, 429)
  t.match(over.headers, { 'x-ratelimit-limit': '1', 'x-ratelimit-remaining': '0', 'retry-after': /^\d+$/ })
  t.match(over.headers, { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' })
  t.equal(envelopeOf(over.body).docs_url, 'https://keys.example/docs/errors/rate_limit_exceeded')

  for (const none of [undefined, null, []]) t.equal(statusOf(await guard.check(none)), 401)
  t.equal(statusOf(await guard.check([`Bearer ${token}`, `Bearer ${token}`], { requestId: 'mine-0' })), 401)
  t.match(await recorded('mine-0'), [{ details: { key_prefix: token.slice(0, 10) } }])
  const request = {
    requestId: 'mine-1',
    method: 'G\0ET',
    path: `/a/${token}?b`,
    ip: '::1',
    userAgent: 'x'.repeat(999),
  }
  const unknown = service.service.stores.tokenFormat.mint()
  const refused = (await guard.check(`Bearer ${unknown}`, request)) as Refused
  t.equal(envelopeOf(refused.body).request_id, 'mine-1')
  const [entry] = await recorded('mine-1')
  t.match(entry, { reason: 'unknown_key', method: 'GET', ip: '::1', user_agent: 'x'.repeat(256) })
  t.match(entry, { details: { key_prefix: unknown.slice(0, 10) } })
  t.notMatch(entry!.path, token)
  const halved = { requestId: 'mine-2', path: '/\ud800', userAgent: `${'x'.repeat(255)}😀` }
  t.equal(statusOf(await guard.check(undefined, halved)), 401)
  const stored = { path: '/\ufffd', user_agent: `${'x'.repeat(255)}\ufffd` }
  t.match(await recorded('mine-2'), [stored], 'no half of a surrogate pair, which Postgres refuses')
  const nothing = { requestId: null, method: null, path: null, ip: null, userAgent: null }
  for (const request of [
    { requestId: 'not\nvisible' },
    { requestId: 'x'.repeat(65) },
    nothing as unknown as Sent,
  ]) {
    const refused = (await guard.check(undefined, request)) as Refused
    t.match([refused.status, refused.headers['x-request-id']], [401, /^req_/])
  }
  const longest = { requestId: 'x'.repeat(64) }
  t.match(await guard.check(undefined, longest), { headers: { 'x-request-id': longest.requestId } })
  const metrics = await guard.metrics()
  t.match(metrics, /latchkey_refusals_total\{reason="missing_header"\} 8/)
  t.match(metrics, /latchkey_requests_total\{status="401"\} 10/)
  t.equal(statusOf(await guard.check('Bearer', null as never)), 401)
})

t.test('the entry of a known key names it and its owner, and a 429 is counted as one', async (t) => {
  const guard = await guardOf(t)
  const [{ id, userId, token }, spent] = [
    await makeCaller(service),
    await makeCaller(service, { rateLimitRpm: 1 }),
  ]
  t.equal((await service.ask('DELETE', `/v1/keys/${id}`, { token })).status, 200)
  t.equal(statusOf(await guard.check(`Bearer ${token}`, { requestId: 'mine-3' })), 401)
  const entries = await sql`select reason, key_id, user_id from audit_log where request_id = 'mine-3'`
  t.strictSame([...entries], [{ reason: 'revoked', key_id: id, user_id: userId }])
  await until(
    'it is over its limit',
    async () => statusOf(await guard.check(`Bearer ${spent.token}`)) === 429,
  )
  t.match(await guard.metrics(), /^latchkey_requests_total\{status="429"\} 1$/m)
})

t.test('closing waits for the checks under way, and what comes later is a 503', async (t) => {
  if (services.redisUrl === null) return void t.pass({ skip: 'Redis is emulated inside the service' })
  const network = await startTcpProxy(t, services.redisUrl)
  const guard = await guardOf(t, { redisUrl: network.url })
  const { token } = await makeCaller(service)
  t.equal(statusOf(await guard.check(`Bearer ${token}`)), 200)
  network.delay(500)
  const underWay = guard.check(`Bearer ${token}`)
  let closed = 0
  for (const closing of [guard.close(), guard.close()]) void closing.then(() => closed++)
  t.equal(statusOf(await guard.check(`Bearer ${token}`)), 503, 'also while it waits')
  t.equal(statusOf(await underWay), 200)
  await until('both calls of close have ended', () => closed === 2)
  const late = (await guard.check('Bearer lk_x')) as Refused
  t.match(late, { status: 503, headers: { 'retry-after': '1' } })
})

t.test('what is no text is a 503, and closing does not wait for it', async (t) => {
  const guard = await guardOf(t)
  for (const value of [Symbol('x'), [Symbol('x')]])
    t.equal(statusOf(await guard.check(value as unknown as string)), 503)
  await guard.close()
})

t.test('what cannot be decided is a 503', async (t) => {
  const network = await startTcpProxy(t, services.databaseUrl)
  // 0: without a limit.
  const app = application(t, { pluginTimeout: 0 })
  const away = { ...options, databaseUrl: network.url, patience: 1 }
  await app.register(latchkey, away)
  const lines = new Map(
    (['debug', 'info', 'log', 'warn', 'error'] as const).map((name) => [name, t.capture(console, name)]),
  )
  const guard = await createGuard(away)
  const { token } = await makeCaller(service)
  network.refuse()
  network.cut()
  const answer = await app.inject({ url: '/', headers: bearer('lk_x') })
  t.equal(answer.statusCode, 503)
  t.equal(answer.headers['retry-after'], '1')
  t.equal(envelopeOf(answer.body).code, 'service_unavailable')
  t.match(answer.headers['x-request-id'], /^req_/, 'not that of the application')
  t.equal(statusOf(await guard.check('Bearer lk_x', { requestId: 'req_away' })), 503)
  t.equal(statusOf(await guard.check(`Bearer ${token}`)), 503, 'nor is a key refused that cannot be read')
  await network.heal()
  await guard.close()
  const said = Object.fromEntries([...lines].map(([name, calls]) => [name, calls().map(({ args }) => args)]))
  t.strictSame([said.debug, said.info, said.log], [[], [], []])
  const aboutIt = said.warn!.find(
    ([, fields]) => (fields as { request_id?: string }).request_id === 'req_away',
  )
  t.match(aboutIt, ['latchkey:', { status: 503, code: 'service_unavailable' }, String])
})

t.test('an application alone works on a fresh database', async (t) => {
  const guard = await guardOf(t, { databaseUrl: await services.createDatabase(), redisUrl: undefined })
  t.equal(statusOf(await guard.check('Bearer lk_x')), 401)
})

t.test('a start that waits too long for a migration fails, and leaves nothing behind', async (t) => {
  const databaseUrl = await services.createDatabase()
  const migrating = openDatabase(t, databaseUrl)
  const held = await migrating.reserve()
  await held`select pg_advisory_lock(7231906)`
  const connections = async () =>
    (await held`select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
      .length

  const late = Fastify({ pluginTimeout: 4000 })
  late.register(latchkey, { ...options, databaseUrl })
  await t.rejects(async () => late.ready(), {
    message: /^latchkey: the start takes longer .*migrating the database/,
  })
  await late.close()
  t.equal(await connections(), 0)

  const said: unknown[] = []
  const info = (line: object | string) => void said.push(line)
  const opening = createGuard({ ...options, databaseUrl, log: { ...console, info } })
  await until('the guard waits', async () => (await connections()) > 0)
  await until('it says so', () => said.length > 0)
  t.match(said, ['Waiting for another instance, which is migrating the database'])
  await held`select pg_advisory_unlock(7231906)`
  held.release()
  await (await opening).close()
})

t.test('a start without Postgres says why, however little time Fastify gives it', async (t) => {
  const app = Fastify({ pluginTimeout: 3000 })
  app.register(latchkey, { ...options, databaseUrl: 'postgres://127.0.0.1:1/latchkey' })
  await t.rejects(async () => app.ready(), { message: /^latchkey: .*ECONNREFUSED/ })
  await app.close()
})

t.test('the time limit of a start ends with it: no timer keeps the process', async (t) => {
  const running = watchTimers(t, 'Timeout')
  // Ten minutes, of which the plugin takes seven.
  const app = Fastify({ pluginTimeout: 600_000 })
  await app.register(latchkey, options)
  t.notOk([...running.values()].some((ms) => ms > 400_000 && ms < 500_000))
  await app.close()
})

t.test('a start that is done after Fastify’s time limit is undone', async (t) => {
  const databaseUrl = await services.createDatabase()
  await (await createGuard({ ...options, databaseUrl })).close()
  const holding = openDatabase(t, databaseUrl)
  const app = Fastify({ pluginTimeout: 3000 })
  app.register(latchkey, { ...options, databaseUrl })
  await holding.begin(async (tx) => {
    await tx`lock table api_keys`
    await t.rejects(async () => app.ready())
  })
  await until('it has disconnected', async () => {
    const others = await holding`
      select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`
    return others.length === 0
  })
  await app.close()
})

t.test('a log that throws keeps no request from its answer', async (t) => {
  const debug = () => {
    throw new Error('the disk is full')
  }
  const guard = await createGuard({ ...options, log: { ...console, debug } })
  t.teardown(guard.close)
  const { token } = await makeCaller(service, { rateLimitRpm: 1 })
  const checks = [token, token, 'lk_absent'].map((one) => guard.check(`Bearer ${one}`))
  const statuses = (await Promise.all(checks)).map((answer) => (answer.ok ? 200 : answer.status))
  t.strictSame(statuses, [200, 429, 401])
})

t.test('a log that cannot be written to is refused at the start', async (t) => {
  const { debug, ...some } = console
  for (const log of [{}, 'silent', null, some])
    await t.rejects(createGuard({ ...options, log } as never), {
      message: 'latchkey: log must have the methods debug, info, warn, error',
    })
})

t.test('a bad option is named and its value not shown', async (t) => {
  const bad = 'hunter2'
  for (const none of [undefined, null, 'postgres://db/x'])
    await t.rejects(createGuard(none as never), {
      message: /^latchkey: databaseUrl and hashSecret are required$/,
    })
  const cases: [object, RegExp][] = [
    [{ databaseUrl: undefined }, /^latchkey: databaseUrl is required/],
    [{ databaseUrl: bad }, /^latchkey: databaseUrl must be a postgres/],
    [{ hashSecret: undefined }, /^latchkey: hashSecret is required with databaseUrl$/],
    [{ hashSecret: bad, redisUrl: bad }, /redisUrl must be .*; hashSecret must be/],
    [{ redisURL: 'redis://hunter2' }, /^latchkey: unknown option redisURL$/],
    ...['hunter2', 0, -1, NaN, Infinity, null].map((patience): [object, RegExp] => [
      { patience },
      /^latchkey: patience must be a positive number$/,
    ]),
    [
      { hashSecret: 'another'.repeat(10) },
      /made under hashSecret: set hashSecret to .*, or set acceptNewHashSecret: true to give/,
    ],
    [{ keyCacheSeconds: 61 }, /keyCacheSeconds must be a whole number/],
    [{ keyPrefix: null, redisUrl: null, keyCacheSeconds: 61 }, /^latchkey: keyCacheSeconds must be[^;]*$/],
    [
      { databaseUrl: 'postgres://ada:hunter2@127.0.0.1:1/db' },
      /^latchkey: the Postgres of databaseUrl.*ECONNREFUSED/,
    ],
  ]
  for (const [more, message] of cases) {
    const app = Fastify()
    const given = { ...options, ...more } as LatchkeyOptions
    const registering = Promise.resolve(app.register(latchkey, given)).then(
      () => null,
      (error: Error) => error,
    )
    const [failed] = await Promise.all([registering, t.rejects(createGuard(given), { message })])
    t.match(failed?.message, message)
    t.notMatch(failed?.message, bad)
    await app.close()
  }
})

t.test('every option has the effect of its own variable', async (t) => {
  const numbers = {
    keyCacheSeconds: 7,
    outageCacheSeconds: 8,
    refusalsPerAddressRpm: 9,
    auditRetentionDays: 10,
    usageRetentionDays: 11,
  }
  const texts = {
    hashSecret,
    hashSecretPrevious: 'previous'.repeat(4),
    baseUrl: 'https://keys.example',
    acceptNewHashSecret: true,
  }
  const config = configOf({ databaseUrl: 'postgres://db/x', keyPrefix: 'acme', ...numbers, ...texts })
  t.match(config, { databaseUrl: 'postgres://db/x', tokenPrefix: 'acme', redis: null, ...numbers, ...texts })
  const { acceptNewHashSecret } = configOf({ ...options, acceptNewHashSecret: false })
  t.equal(acceptNewHashSecret, false)
})
