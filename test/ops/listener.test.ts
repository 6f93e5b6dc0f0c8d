// The ops listener by itself: what its probes say while the service starts, runs and stops.
import t from 'tap'
import { createOps, type OpsOptions } from '../../src/ops/listener.ts'
import { createMetrics } from '../../src/process/metrics.ts'
import { tokenFormat } from '../../src/rules/token.ts'

function ops(options: Partial<OpsOptions>) {
  const service = {
    metrics: createMetrics(),
    health: () => ({ redis: 'shared', postgres: 'ok' }),
    stores: { tokenFormat: tokenFormat('lk'), audit: { recordOperatorRefusal: async () => {} } } as never,
    lastUsed: undefined!,
    onError: () => {},
  }
  return createOps({
    service,
    docsBase: () => 'http://docs.test/',
    state: () => 'ready',
    tokens: [],
    metricsToken: null,
    defaultRateLimitRpm: 1000,
    ...options,
  })
}

t.test('it is ready only between the opening of the public listener and a stop', async (t) => {
  let state: 'starting' | 'ready' | 'draining' = 'starting'
  const app = ops({ state: () => state })
  for (const [now, status] of [
    ['starting', 503],
    ['ready', 200],
    ['draining', 503],
  ] as const) {
    state = now
    const answer = await app.inject('/readyz')
    t.equal(answer.statusCode, status)
    t.same(answer.json(), { status: now, redis: 'shared', postgres: 'ok' })
    t.equal((await app.inject('/healthz')).statusCode, 200)
  }
})

t.test('its answers are not stored and not sniffed', async (t) => {
  const app = ops({ metricsToken: 'a-token-of-prometheus' })
  for (const path of ['/healthz', '/readyz', '/metrics', '/nothing']) {
    const { headers } = await app.inject(path)
    t.match(headers, { 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' }, path)
  }
})

t.test('tokens guard all but the probes', async (t) => {
  const tokens = [{ name: 'ada', token: 'a-token-of-adas-own' }]
  const app = ops({ tokens, metricsToken: 'a-token-of-prometheus' })
  const status = async (url: string, token?: string) =>
    (await app.inject({ url, headers: token === undefined ? {} : { authorization: `Bearer ${token}` } }))
      .statusCode
  t.equal(await status('/healthz'), 200)
  t.equal(await status('/readyz'), 200)
  t.equal(await status('/metrics'), 401)
  t.equal(await status('/metrics', 'a-token-of-prometheus'), 200)
  for (const path of ['/admin/users', '/%zz', '/']) t.equal(await status(path), 401, path)
  t.equal(await status('/admin/nothing', 'a-token-of-adas-own'), 404)
})

t.test('an address that is refused too often locks out its /64, and nobody else', async (t) => {
  const token = 'a-token-of-adas-own'
  const app = ops({ tokens: [{ name: 'ada', token }], now: () => 0 })
  const status = async (remoteAddress: string, presented = token) =>
    (await app.inject({ url: '/nothing', remoteAddress, headers: { authorization: `Bearer ${presented}` } }))
      .statusCode
  for (let n = 0; n < 60; n++) t.equal(await status(`2001:db8::${n}`, 'a-wrong-token-of-it'), 401)
  t.equal(await status('2001:db8::ffff'), 429)
  for (const address of ['2001:db8:0:1::1', '192.0.2.1', '::1']) t.equal(await status(address), 404, address)
})
