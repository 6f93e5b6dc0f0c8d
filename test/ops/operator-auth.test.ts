// Who may ask the ops listener: somebody with a token, or, where there is none, somebody on this machine who means this machine.
import type { AddressInfo } from 'node:net'
import Fastify from 'fastify'
import t, { type Test } from 'tap'
import errors from '../../plugins/errors.ts'
import unknownRoute from '../../plugins/unknown-route.ts'
import operatorAuth, { type OperatorAuthOptions } from '../../src/ops/operator-auth.ts'
import { type RawAnswer, sendBytes } from '../api/raw-http.ts'
import { until } from '../process/until.ts'

const ada = { name: 'ada', token: 'a-token-of-adas-own' }
const bob = { name: 'bob', token: 'bobs-token-is-longer-than-hers' }
const metricsToken = 'a-token-of-prometheus'

async function listening(t: Test, options: Partial<OperatorAuthOptions> = {}, host = '127.0.0.1') {
  const app = Fastify({ forceCloseConnections: true, genReqId: () => 'req_1' })
  app.register(errors, { docsBase: 'http://docs.test/' })
  app.register(operatorAuth, { tokens: [], metricsToken: null, record: async () => {}, ...options })
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
    const [method, path] = target.includes(' ') ? target.split(' ') : ['GET', target]
    const hosts = headers.some((line) => /^host:/i.test(line)) ? [] : [`Host: 127.0.0.1:${port}`]
    const lines = [`${method} ${path} HTTP/1.1`, ...hosts, 'Connection: close', ...headers, '', '']
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

t.test('with tokens each names its operator', async (t) => {
  const ask = await listening(t, { tokens: [ada, bob] })
  t.same((await ask('/admin', bearer(ada.token))).body, { operator: 'ada' })
  t.same((await ask('POST /admin', bearer(bob.token))).body, { operator: 'bob' })
  t.same((await ask('/admin', bearer(ada.token), 'Host: ops.example')).body, { operator: 'ada' })
})

t.test('with tokens nothing else is let in, not even from this machine', async (t) => {
  const ask = await listening(t, { tokens: [ada, bob], metricsToken })
  const wrong = [
    ...['', 'Bearer ', `Bearer ${ada.token}x`, `Bearer ${ada.token.slice(0, -1)}`, `bearer ${ada.token}`],
    ...[
      `Bearer  ${ada.token}`,
      `Basic ${ada.token}`,
      ada.token,
      `Bearer ${ada.name}:${ada.token}`,
      'Bearer ada',
    ],
    ...[`Bearer "${ada.token}"`, `Bearer ${ada.token} ${bob.token}`, `Bearer ${metricsToken}`],
  ]
  const reference = await ask('/admin')
  expectRefused(t, reference, 'no header')
  for (const value of wrong) {
    const answer = await ask('/admin', `Authorization: ${value}`)
    expectRefused(t, answer, value)
    t.equal(answer.uniform, reference.uniform)
  }
  const two = await ask('/admin', bearer(ada.token), bearer(ada.token))
  t.equal(two.uniform, reference.uniform, 'two headers')
})

t.test('a probe needs no token, with or without tokens', async (t) => {
  for (const tokens of [[], [ada]]) {
    const ask = await listening(t, { tokens, metricsToken })
    t.same((await ask('/open', 'Host: anything.example')).body, { operator: null })
  }
})

t.test('the metrics are open until they have a token of their own', async (t) => {
  const open = await listening(t, { tokens: [ada] })
  t.equal((await open('/metrics', 'Host: anything.example')).status, 200)
  const closed = await listening(t, { tokens: [ada], metricsToken })
  t.same((await closed('/metrics', bearer(metricsToken))).body, { operator: null })
  for (const headers of [[], [bearer(`${metricsToken}x`)], [bearer(ada.token)]]) {
    expectRefused(t, await closed('/metrics', ...headers), headers.join())
  }
})

t.test('an unknown route is the 401 without a token, and 404 or 405 with one', async (t) => {
  const ask = await listening(t, { tokens: [ada] })
  const reference = await ask('/admin')
  for (const target of ['/nothing', 'POST /open', '/admin/', '/metrics/x'])
    t.equal((await ask(target)).uniform, reference.uniform, target)
  t.equal((await ask('/nothing', bearer(ada.token))).status, 404)
  t.equal((await ask('POST /open', bearer(ada.token))).status, 405)
})

t.test('without tokens this machine may ask, by a name of this machine', async (t) => {
  const ask = await listening(t)
  const own = [
    'localhost',
    'localhost:9464',
    'LOCALHOST',
    'ops.localhost:80',
    '127.0.0.1',
    '127.8.9.10:1',
    '[::1]',
  ]
  for (const host of [...own, '[::1]:9464']) {
    t.same((await ask('/admin', `Host: ${host}`)).body, { operator: 'local' }, host)
  }
})

t.test('without tokens a name that somebody else may have pointed here is refused', async (t) => {
  const ask = await listening(t)
  const foreign = [
    ...[
      'rebound.example',
      'rebound.example:9464',
      'localhost.example',
      'notlocalhost',
      '10.0.0.1',
      '128.0.0.1',
    ],
    ...[
      '127.0.0.1.example',
      '0.0.0.0',
      '[::]',
      '[::ffff:10.0.0.1]',
      'evil@localhost',
      'localhost/x',
      'localhost:x',
      '',
    ],
  ]
  for (const host of foreign) expectRefused(t, await ask('/admin', `Host: ${host}`), host)
})

t.test('without tokens a listener beyond loopback lets nobody in', async (t) => {
  const ask = await listening(t, {}, '0.0.0.0')
  expectRefused(t, await ask('/admin', 'Host: localhost'), 'bound to all addresses')
  t.equal((await ask('/open')).status, 200)
})

t.test('what changes something must not come from the page of another origin', async (t) => {
  for (const [tokens, headers] of [
    [[], []],
    [[ada], [bearer(ada.token)]],
  ]) {
    const ask = await listening(t, { tokens: tokens! as never })
    const own = ['Host: localhost:9464', ...(headers as string[])]
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
      t.equal((await ask(`${method} /admin`, ...own)).status, 200, `${method} without Origin`)
      t.equal((await ask(`${method} /admin`, ...own, 'Origin: http://localhost:9464')).status, 200, 'its own')
      for (const origin of [
        'http://evil.example',
        'null',
        'http://localhost',
        'http://localhost:9465',
        'x',
      ]) {
        expectRefused(t, await ask(`${method} /admin`, ...own, `Origin: ${origin}`), `${method} ${origin}`)
      }
    }
    for (const method of ['GET', 'HEAD', 'OPTIONS'])
      t.equal((await ask(`${method} /admin`, ...own, 'Origin: http://evil.example')).status, 200, method)
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
