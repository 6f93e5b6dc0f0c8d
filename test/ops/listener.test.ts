// The ops listener by itself: what its probes say while the service starts, runs and stops.
import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import t from 'tap'
import { createMemoryCounter } from '../../src/memory/counter.ts'
import { createOps, type OpsOptions } from '../../src/ops/listener.ts'
import { createMetrics } from '../../src/process/metrics.ts'
import { tokenFormat } from '../../src/rules/token.ts'
import type { Counter } from '../../src/stores.ts'
import { until } from '../process/until.ts'

const metricsToken = 'a-token-of-prometheus'

type Options = Partial<Pick<OpsOptions, 'state' | 'now'> & OpsOptions['config']>

function ops({ state = () => 'ready', now, ...config }: Options, stores: object = {}) {
  const service = {
    metrics: createMetrics(),
    health: () => ({ redis: 'shared', postgres: 'ok' }) as const,
    stores: {
      tokenFormat: tokenFormat('lk'),
      audit: { recordOperatorRefusal: async () => {} },
      ...stores,
    } as never,
    lastUsed: undefined!,
    onError: () => {},
    instance: undefined!,
  }
  return createOps({
    config: {
      opsTokens: [],
      metricsToken: null,
      githubScanningKeysFile: null,
      defaultRateLimitRpm: 1000,
      maxRateLimitRpm: 1_000_000_000,
      ...config,
    },
    service,
    docsBase: () => 'http://docs.test/',
    state,
    now,
  })
}

t.test('the ops listener is ready only while the public one is open', async (t) => {
  const statuses = { starting: 503, ready: 200, draining: 503 }
  let state: keyof typeof statuses = 'starting'
  const app = ops({ state: () => state })
  for (state of ['starting', 'ready', 'draining'] as const) {
    const answer = await app.inject('/readyz')
    t.equal(answer.statusCode, statuses[state])
    t.same(answer.json(), { status: state, redis: 'shared', postgres: 'ok' })
    t.equal((await app.inject('/healthz')).statusCode, 200)
  }
})

t.test('no response may be stored or sniffed', async (t) => {
  const app = ops({ metricsToken })
  for (const path of ['/healthz', '/readyz', '/metrics', '/nothing']) {
    const { headers } = await app.inject(path)
    t.match(headers, { 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' }, path)
  }
})

t.test('the metrics name their text format, without which Prometheus may refuse them', async (t) => {
  const { headers } = await ops({}).inject('/metrics')
  t.match(headers['content-type'], /^text\/plain; version=0\.0\.4;/)
})

t.test('tokens guard everything but the probes and the page with the login', async (t) => {
  const token = 'a-token-of-adas-own'
  const app = ops({ opsTokens: [{ name: 'ada', token }], metricsToken })
  const status = async (url: string, token?: string) => {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
    return (await app.inject({ url, headers })).statusCode
  }
  for (const path of ['/healthz', '/readyz', '/']) t.equal(await status(path), 200, path)
  for (const path of ['/metrics', '/admin/users', '/%zz', '/logout']) t.equal(await status(path), 401, path)
  t.equal(await status('/metrics', metricsToken), 200)
  t.equal(await status('/admin/nothing', token), 404)
})

t.test('a query parameter that no route takes is refused, not ignored', async (t) => {
  const token = 'a-token-of-adas-own'
  const app = ops({ opsTokens: [{ name: 'ada', token }] })
  const headers = { authorization: `Bearer ${token}` }
  for (const [method, url] of [
    ['GET', '/admin/instances?limit=1'],
    ['DELETE', '/admin/users/usr_1?force=1'],
  ] as const)
    t.match((await app.inject({ method, url, headers })).json().error, { code: 'unknown_parameter' }, url)
})

t.test('an address that is refused too often locks out its /64, and nobody else', async (t) => {
  const token = 'a-token-of-adas-own'
  const app = ops({ opsTokens: [{ name: 'ada', token }], now: () => 0 })
  const status = async (remoteAddress: string, presented = token) =>
    (await app.inject({ url: '/nothing', remoteAddress, headers: { authorization: `Bearer ${presented}` } }))
      .statusCode
  for (let n = 0; n < 60; n++) t.equal(await status(`2001:db8::${n}`, 'a-wrong-token-of-it'), 401)
  t.equal(await status('2001:db8::ffff'), 429)
  for (const address of ['2001:db8:0:1::1', '192.0.2.1', '::1']) t.equal(await status(address), 404, address)
})

t.test('a refusal that cannot be recorded is a 503, and not counted as one', async (t) => {
  const recordOperatorRefusal = () => Promise.reject(new Error('Postgres is down'))
  const opsTokens = [{ name: 'ada', token: 'a-token-of-adas-own' }]
  const app = ops({ opsTokens }, { audit: { recordOperatorRefusal } })
  t.equal((await app.inject('/admin/users')).statusCode, 503)
  const { body } = await app.inject('/metrics')
  t.match(body, /^latchkey_operator_refusals_total\{reason="missing_token"\} 0$/m)
})

t.test('a scan of the counters ends with the listener', async (t) => {
  let scanned: AbortSignal | undefined
  const scan: Counter['scan'] = (_minute, _visit, options) => {
    scanned = options!.signal
    return new Promise(() => {})
  }
  const counter = { ...createMemoryCounter({ now: () => 0 }), scan }
  const token = 'a-token-of-adas-own'
  const stores = { counter, keys: { rank: async () => [] } }
  const app = ops({ opsTokens: [{ name: 'ada', token }] }, stores)
  await app.inject({ url: '/admin/counters', headers: { authorization: `Bearer ${token}` } })
  t.equal(scanned!.aborted, false)
  await app.close()
  t.equal(scanned!.aborted, true)
})

t.test('a request that never arrives whole does not hold up a stop', async (t) => {
  const app = ops({})
  await app.listen({ host: '127.0.0.1', port: 0 })
  const client = connect((app.server.address() as AddressInfo).port, '127.0.0.1')
  t.teardown(() => client.destroy())
  client.on('error', () => {})
  const asked = once(app.server, 'request')
  client.write('POST /admin/users HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{')
  await asked
  let isClosed = false
  void app.close().then(() => {
    isClosed = true
  })
  await until('it has closed', () => isClosed, 10_000)
})

t.test('a client that resets its connection has an address', async (t) => {
  const app = ops({})
  await app.listen({ host: '127.0.0.1', port: 0 })
  t.teardown(() => app.close())
  const accepted = once(app.server, 'connection')
  const client = connect((app.server.address() as AddressInfo).port, '127.0.0.1')
  const [connection] = (await accepted) as [Socket]
  const closed = new Promise((resolve) => connection.once('close', resolve))
  client.resetAndDestroy()
  await closed
  t.equal(connection.remoteAddress, '127.0.0.1')
})
