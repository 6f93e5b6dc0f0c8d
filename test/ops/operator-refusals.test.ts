// Whom the ops listener refuses: each refusal is in the audit log before it is answered, and an
// address has few a minute.
import t, { type Test } from 'tap'
import { expectError } from '../api/expect-error.ts'
import { sendBytes } from '../api/raw-http.ts'
import { startInstance, startOps } from '../instance.ts'
import { externalEnv, runLatchkey, serveLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { ada, bob, startAdmin } from './admin.ts'

const { services, instance, sql } = await startAdmin(t, { METRICS_TOKEN: 'a-token-of-prometheus' })

/** An ops listener with a minute and budgets of its own. */
async function listener(t: Test, from = instance) {
  const clock = { ms: Date.parse('2026-01-01T12:00:00Z') }
  const ops = await startOps(t, from, { now: () => clock.ms })
  const entryOf = async ({ headers }: { headers: Headers }) => [
    ...(await sql`
      select event, reason, method, path, ip, user_agent, actor, key_id, user_id, details
      from audit_log where request_id = ${headers.get('x-request-id')}`),
  ]
  return { ...ops, clock, entryOf }
}

const refusals = async () =>
  (await sql`select count(*)::int as n from audit_log where event = 'operator.refused'`)[0]!.n as number

t.test('every refusal is in the audit log with its reason when it is answered', async (t) => {
  const { ask, entryOf } = await listener(t)
  const headers = { 'user-agent': 'a test' }
  const cases: [reason: string, method: string, path: string, more: object][] = [
    ['missing_token', 'GET', '/admin/users', {}],
    ['wrong_token', 'GET', '/admin/users', { token: `${ada}x` }],
    ['wrong_token', 'GET', '/admin/nothing', { token: 'a-token-of-prometheus' }],
    [
      'wrong_token',
      'DELETE',
      '/admin/users/usr_1',
      { headers: { ...headers, authorization: `Basic ${ada}` } },
    ],
    [
      'foreign_origin',
      'POST',
      '/admin/users',
      { token: ada, headers: { ...headers, origin: 'http://evil.example' }, body: '{' },
    ],
    ['missing_token', 'GET', '/metrics', {}],
    ['wrong_token', 'GET', '/metrics', { token: ada }],
  ]
  for (const [reason, method, path, more] of cases) {
    const answer = await ask(method, `${path}?x=secret`, { headers, ...more })
    expectError(t, answer, 'operator_unauthorized')
    t.strictSame(await entryOf(answer), [
      {
        ...{ event: 'operator.refused', reason, method, path, ip: '127.0.0.1', user_agent: 'a test' },
        ...{ actor: null, key_id: null, user_id: null, details: null },
      },
    ])
  }
  const key = instance.service.stores.tokenFormat.mint()
  const [entry] = await entryOf(await ask('GET', `/admin/keys/${key}`, { headers: { 'user-agent': key } }))
  t.match(entry, { path: '/admin/keys/lk_[redacted]', user_agent: 'lk_[redacted]' })
})

t.test('each operator is let in by their own token, and nobody is recorded as refused', async (t) => {
  const { ask } = await listener(t)
  const before = await refusals()
  for (const token of [ada, bob]) t.equal((await ask('GET', '/admin/users', { token })).status, 200)
  t.equal((await ask('GET', '/metrics', { token: 'a-token-of-prometheus' })).status, 200)
  for (const path of ['/healthz', '/readyz']) t.equal((await ask('GET', path)).status, 200)
  t.equal(await refusals(), before)
})

t.test(
  'without tokens the page of another origin, and another host name, are refused and recorded',
  async (t) => {
    const { ask, entryOf, port } = await listener(t, await startInstance(t, services))
    t.equal((await ask('GET', '/admin/users')).status, 200)
    t.equal((await ask('GET', '/metrics')).status, 200)
    const created = await ask('POST', '/admin/users', { json: { name: 'x' } })
    t.match(await entryOf(created), [{ event: 'user.created', actor: 'operator:local' }])
    const count = async () => (await sql`select from users`).length
    const before = await count()
    const forged = await ask('POST', '/admin/users', {
      json: { name: 'x' },
      headers: { origin: 'http://evil.example' },
    })
    expectError(t, forged, 'operator_unauthorized')
    t.match(await entryOf(forged), [{ reason: 'foreign_origin', path: '/admin/users' }])
    const rebound = await sendBytes(
      port,
      'GET /admin/users HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n',
    )
    t.equal(rebound.status, 401)
    t.match(await entryOf(rebound), [{ reason: 'foreign_host', path: '/admin/users' }])
    t.equal(await count(), before)
  },
)

t.test('an address has 60 refusals a minute; then no token helps until the minute is over', async (t) => {
  const { ask, clock } = await listener(t)
  const before = await refusals()
  clock.ms += 20_500
  const wrong = async () => (await ask('GET', '/admin/users', { token: 'a-guess-at-a-token' })).status
  for (let n = 0; n < 59; n++) t.equal(await wrong(), 401)
  t.equal((await ask('GET', '/admin/users', { token: ada })).status, 200, 'there is one left')
  t.strictSame(await Promise.all([wrong(), wrong(), wrong()]).then((all) => all.sort()), [401, 429, 429])
  for (const [path, token] of [
    ['/admin/users', ada],
    ['/admin/users', 'another-guess-at-it'],
    ['/admin/nothing', undefined],
    ['/metrics', 'a-token-of-prometheus'],
  ] as const) {
    const answer = await ask('GET', path, token === undefined ? {} : { token })
    expectError(t, answer, 'rate_limit_exceeded')
    t.equal(answer.headers.get('retry-after'), '40', 'until the minute is over')
  }
  for (const path of ['/healthz', '/readyz']) t.equal((await ask('GET', path)).status, 200)
  t.equal(await refusals(), before + 60, 'nothing more is written')
  clock.ms += 39_499
  t.equal((await ask('GET', '/admin/users', { token: ada })).status, 429)
  clock.ms += 1
  t.equal((await ask('GET', '/admin/users', { token: ada })).status, 200)
  t.equal(await wrong(), 401)
})

t.test(
  'requests that guess no token have a budget of their own: no page keeps an operator out',
  async (t) => {
    const { ask } = await listener(t)
    const before = await refusals()
    const page = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' }
    const frame = { ...page, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'iframe' }
    const loadedBy = [
      ['/admin/users', page],
      ['/metrics', page],
      ['/admin/users', frame],
      // Over plain http beyond localhost, a browser does not say which page it is for.
      ['/admin/users', {}],
      ['/metrics', {}],
    ] as const
    const get = (n: number) => {
      const [path, headers] = loadedBy[n % loadedBy.length]!
      return ask('GET', path, { headers })
    }
    for (let n = 0; n < 60; n++) t.equal((await get(n)).status, 401)
    for (let n = 0; n < loadedBy.length; n++) {
      const refused = await get(n)
      expectError(t, refused, 'rate_limit_exceeded')
      t.match(refused.body.error.suggestion, /token, Origin and Host\.$/)
    }
    t.equal(await refusals(), before + 60)
    t.equal((await ask('GET', '/admin/users', { token: ada })).status, 200)
    t.equal((await ask('GET', '/admin/users', { token: `${ada}x` })).status, 401)
  },
)

t.test('a refusal that cannot be recorded is a 503', async (t) => {
  const { ask } = await listener(t)
  await sql`alter table audit_log rename to audit_log_elsewhere`
  t.teardown(() => sql`alter table if exists audit_log_elsewhere rename to audit_log`)
  expectError(t, await ask('GET', '/admin/users'), 'service_unavailable')
  t.equal((await ask('GET', '/healthz')).status, 200)
  await sql`alter table audit_log_elsewhere rename to audit_log`
  expectError(t, await ask('GET', '/admin/users'), 'operator_unauthorized')
})

t.test('beyond loopback it starts only with OPS_TOKEN, and a command needs none', async (t) => {
  const open = externalEnv(services, { OPS_HOST: '0.0.0.0' })
  const { code, stdout, stderr } = await runLatchkey(t, open, 'serve')
  t.strictSame([code, stdout], [1, ''])
  t.match(stderr, /^latchkey: OPS_TOKEN is required .*OPS_HOST[^\n]*\n$/)
  t.equal((await runLatchkey(t, open, 'users', 'list')).code, 0)
  const service = await serveLatchkey(t, externalEnv(services, { OPS_HOST: '0.0.0.0', OPS_TOKEN: ada }))
  const status = async (headers: Record<string, string>) =>
    (await fetch(`${service.opsUrl}/admin/users`, { headers })).status
  t.equal(await status({ authorization: `Bearer ${ada}` }), 200)
  t.equal(await status({}), 401)
  await until('it is ready', async () => (await fetch(`${service.opsUrl}/readyz`)).status === 200)
  await serveLatchkey(t, externalEnv(services, { OPS_HOST: 'localhost' }))
})
