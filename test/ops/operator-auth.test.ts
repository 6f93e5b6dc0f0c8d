// Who may use the ops listener: with OPS_TOKEN, its holders; without, requests from this machine
// that name this machine.
import crypto from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import type { AddressInfo } from 'node:net'
import Fastify from 'fastify'
import t, { type Test } from 'tap'
import errors from '../../plugins/errors.ts'
import unknownRoute from '../../plugins/unknown-route.ts'
import operatorAuth, { type OperatorAuthOptions } from '../../src/ops/operator-auth.ts'
import { createSessions } from '../../src/ops/sessions.ts'
import { type RawAnswer, sendBytes } from '../api/raw-http.ts'
import { until } from '../process/until.ts'

const ada = { name: 'ada', token: 'a-token-of-adas-own' }
const bob = { name: 'bob', token: 'bobs-token-is-longer-than-hers' }
const metricsToken = 'a-token-of-prometheus'

async function listening(t: Test, options: Partial<OperatorAuthOptions> = {}, host = '127.0.0.1') {
  const app = Fastify({ forceCloseConnections: true, genReqId: () => 'req_1' })
  app.register(errors, { docsBase: 'http://docs.test/' })
  const sessions = createSessions(options.tokens ?? [])
  app.register(operatorAuth, {
    ...{ tokens: [], sessions, metricsToken: null, record: async () => {} },
    ...options,
  })
  app.register(unknownRoute)
  app.register(async (scope) => {
    scope.get('/open', { config: { credential: 'none' } }, async ({ operator }) => ({ operator }))
    scope.get('/metrics', { config: { credential: 'metrics' } }, async ({ operator }) => ({ operator }))
    scope.all('/admin', async ({ operator }) => ({ operator }))
  })
  await app.listen({ host, port: 0 })
  t.teardown(() => app.close())
  const { port } = app.server.address() as AddressInfo
  return (target: string, ...headers: string[]) => {
    const [method, path, version = 'HTTP/1.1'] = target.includes(' ') ? target.split(' ') : ['GET', target]
    const isHostGiven = version === 'HTTP/1.0' || headers.some((line) => /^host:/i.test(line))
    const hosts = isHostGiven ? [] : [`Host: 127.0.0.1:${port}`]
    const lines = [`${method} ${path} ${version}`, ...hosts, 'Connection: close', ...headers, '', '']
    return sendBytes(port, lines.join('\r\n'))
  }
}

const bearer = (token: string) => `Authorization: Bearer ${token}`

function expectRefused(t: Test, answer: RawAnswer, what: string) {
  t.equal(answer.status, 401, what)
  t.match(answer.body?.error, {
    ...{ type: 'authentication_error', code: 'operator_unauthorized', param: 'authorization' },
    ...{ message: /./, suggestion: /./, docs_url: 'http://docs.test/operator_unauthorized' },
  })
  t.equal(answer.headers.get('www-authenticate'), 'Bearer realm="latchkey ops"')
}

t.test('each token identifies its operator', async (t) => {
  const ask = await listening(t, { tokens: [ada, bob] })
  t.same((await ask('/admin', bearer(ada.token))).body, { operator: 'ada' })
  t.same((await ask('POST /admin', bearer(bob.token))).body, { operator: 'bob' })
  t.same((await ask('/admin', bearer(ada.token), 'Host: ops.example')).body, { operator: 'ada' })
  const byUser = await ask('POST /admin', bearer(ada.token), 'Sec-Fetch-Site: none')
  t.same(byUser.body, { operator: 'ada' }, 'a browser whose user asked, and no page')
})

t.test('an operator whose name has dots has a session, too', async (t) => {
  const name = 'ada.of.ops'
  const sessions = createSessions([{ ...ada, name }])
  const [cookie] = sessions.begin(name, false).split(';')
  t.equal(sessions.ownerOf(cookie), name)
})

t.test('how long it takes tells nothing about a token or a session', async (t) => {
  const { timingSafeEqual } = crypto
  const replace = (compare: typeof timingSafeEqual) => {
    Object.assign(crypto, { timingSafeEqual: compare })
    syncBuiltinESMExports()
  }
  t.teardown(() => replace(timingSafeEqual))
  const compared: number[] = []
  replace((a, b) => {
    compared.push(a.byteLength)
    return timingSafeEqual(a, b)
  })
  const ask = await listening(t, { tokens: [ada, bob] })
  for (const token of [ada.token, bob.token, 'x']) {
    await ask('/admin', bearer(token))
    t.strictSame(compared.splice(0), [32, 32], 'the digests of all tokens are compared')
  }
  const { begin, ownerOf } = createSessions([ada, bob])
  ownerOf(begin('bob', false).split(';')[0])
  t.strictSame(compared, [32])
})

t.test('with tokens every other credential is refused alike, even from this machine', async (t) => {
  const ask = await listening(t, { tokens: [ada, bob], metricsToken })
  const reference = await ask('/admin')
  expectRefused(t, reference, 'no header')
  const { token } = ada
  const wrong = [
    ...['', 'Bearer ', 'Bearer ada', token, `bearer ${token}`, `Bearer  ${token}`, `Basic ${token}`],
    ...[`Bearer ${token}x`, `Bearer ${token.slice(0, -1)}`, `Bearer "${token}"`, `Bearer ada:${token}`],
    ...[`Bearer ${token} ${bob.token}`, `Bearer ${metricsToken}`],
  ]
  for (const value of wrong) {
    t.equal((await ask('/admin', `Authorization: ${value}`)).uniform, reference.uniform, value)
  }
  t.equal((await ask('/admin', bearer(token), bearer(token))).uniform, reference.uniform, 'two headers')
})

t.test('an unknown route is the same 401 without a token, and 404 or 405 with one', async (t) => {
  const ask = await listening(t, { tokens: [ada] })
  const reference = await ask('/admin')
  for (const target of ['/nothing', 'POST /open', '/admin/', '/metrics/x']) {
    t.equal((await ask(target)).uniform, reference.uniform, target)
  }
  t.equal((await ask('/nothing', bearer(ada.token))).status, 404)
  t.equal((await ask('POST /open', bearer(ada.token))).status, 405)
})

t.test('a probe needs no token', async (t) => {
  for (const tokens of [[], [ada]]) {
    const ask = await listening(t, { tokens, metricsToken })
    t.same((await ask('/open', 'Host: anything.example')).body, { operator: null })
  }
})

t.test('the metrics are open unless METRICS_TOKEN is set, and then need exactly that', async (t) => {
  const open = await listening(t, { tokens: [ada] })
  t.equal((await open('/metrics', 'Host: anything.example')).status, 200)
  const closed = await listening(t, { tokens: [ada], metricsToken })
  t.same((await closed('/metrics', bearer(metricsToken))).body, { operator: null })
  for (const headers of [[], [bearer(`${metricsToken}x`)], [bearer(ada.token)]]) {
    const refused = await closed('/metrics', ...headers)
    expectRefused(t, refused, headers.join())
    t.match(refused.body.error.suggestion, 'METRICS_TOKEN')
  }
  const ofPage = await closed('/metrics', bearer(metricsToken), 'Sec-Fetch-Site: cross-site')
  expectRefused(t, ofPage, 'no other page reads them')
  const alone = await listening(t, { metricsToken })
  t.equal((await alone('/metrics', 'Host: anything.example', bearer(metricsToken))).status, 200)
})

t.test('without tokens a request that names this machine is let in, and no other', async (t) => {
  const ask = await listening(t)
  const own = 'localhost localhost:9464 LOCALHOST ops.localhost:80 127.0.0.1 127.8.9.10:1 [::1] [::1]:9464'
  for (const host of own.split(' ')) {
    t.same((await ask('/admin', `Host: ${host}`)).body, { operator: 'local' }, host)
  }
  const foreign = [
    ...['', 'rebound.example', 'rebound.example:9464', 'localhost.example', 'notlocalhost', '0.0.0.0'],
    ...['10.0.0.1', '128.0.0.1', '127.0.0.1.example', '[::]', '[::ffff:10.0.0.1]', 'evil@localhost'],
    ...['localhost/x', 'localhost:x'],
  ]
  for (const host of foreign) expectRefused(t, await ask('/admin', `Host: ${host}`), host)
})

t.test('without tokens a listener beyond loopback lets nobody in', async (t) => {
  const ask = await listening(t, {}, '0.0.0.0')
  expectRefused(t, await ask('/admin', 'Host: localhost'), 'bound to all addresses')
  t.equal((await ask('/open')).status, 200)
})

t.test('a request that changes something is refused from the page of another origin', async (t) => {
  for (const tokens of [[], [ada]]) {
    const ask = await listening(t, { tokens })
    const own = ['Host: localhost:9464', ...tokens.map(({ token }) => bearer(token))]
    const from = (method: string, origin: string) => ask(`${method} /admin`, ...own, `Origin: ${origin}`)
    const [host, ...others] = own
    const inCapitals = await ask(
      'POST /admin',
      host!.toUpperCase(),
      ...others,
      'Origin: http://localhost:9464',
    )
    t.equal(inCapitals.status, 200, 'a host name has no case')
    const withPort = await ask('POST /admin', 'Host: localhost:443', ...others, 'Origin: https://localhost')
    t.equal(withPort.status, 200, 'a proxy may add the default port')
    const hostless = await ask('POST /admin HTTP/1.0', ...others, 'Origin: http://undefined')
    expectRefused(t, hostless, 'no Host is nobody’s origin')
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
      t.equal((await ask(`${method} /admin`, ...own)).status, 200, `${method} without Origin`)
      t.equal((await from(method, 'http://localhost:9464')).status, 200, 'its own')
      for (const origin of [
        'http://evil.example',
        'null',
        'http://localhost',
        'http://localhost:9465',
        'x',
      ]) {
        expectRefused(t, await from(method, origin), `${method} ${origin}`)
      }
    }
    for (const method of ['GET', 'HEAD', 'OPTIONS']) {
      t.equal((await from(method, 'http://evil.example')).status, 200, method)
    }
  }
})

t.test('a refusal is answered once it is recorded, and is a 503 if it cannot be', async (t) => {
  let settle = { resolve: () => {}, reject: (_error: Error) => {} }
  let recorded = 0
  const record = () => {
    recorded++
    return new Promise<void>((resolve, reject) => {
      settle = { resolve, reject }
    })
  }
  const ask = await listening(t, { tokens: [ada], record })
  for (const [end, status] of [
    [() => settle.resolve(), 401],
    [() => settle.reject(new Error('full')), 503],
  ] as const) {
    const before = recorded
    let answered = false
    const answer = ask('/admin').finally(() => {
      answered = true
    })
    await until('it is being recorded', () => recorded > before)
    t.equal((await ask('/open')).status, 200)
    t.equal(answered, false)
    end()
    t.equal((await answer).status, status)
  }
})
