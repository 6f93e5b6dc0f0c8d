// The metrics of a live service: named as Prometheus wants it, and with labels that no client can multiply.
import { spawnSync } from 'node:child_process'
import t from 'tap'
import { deleteUser, makeCaller, startInstance, startOps } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { parsePrometheus } from './prometheus.ts'
import { until } from './until.ts'

const instance = await startInstance(t, await useServices(t))
const ops = await startOps(t, instance)
const scrape = async () => (await ops.ask('GET', '/metrics')).text
const ours = (text: string) =>
  text
    .split('\n')
    .filter((line) => /^(# (HELP|TYPE) )?latchkey_/.test(line))
    .map((line) => `${line}\n`)
    .join('')
const hasPromtool = spawnSync('promtool', ['--version']).status === 0

t.test('each of our metrics is well named', { skip: !hasPromtool && 'no promtool' }, async (t) => {
  const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
    input: ours(await scrape()),
    encoding: 'utf8',
  })
  t.match({ status, stdout, stderr }, { status: 0, stdout: '', stderr: '' })
})

t.test('requests are measured by route, and what clients make up adds no series', async (t) => {
  const { token, id, userId } = await makeCaller(instance)
  const askAll = async (n: number) => {
    await instance.ask('GET', '/v1/verify', { token })
    await instance.ask('GET', `/v1/keys/${id}`, { token })
    await instance.ask('GET', `/v1/keys/apk_${n}`, { token })
    await instance.ask('GET', `/path/${n}`, { token })
    await instance.ask(`MADE${n}UP`, '/v1/verify', { token }).catch(() => {})
    await instance.ask('POST', '/v1/keys', { token, json: { name: `${n}`, [`member${n}`]: n } })
    await instance.ask('GET', '/v1/verify', { token: `lk_${n}` })
    await ops.ask('POST', '/admin/users', { headers: { origin: `http://${n}.example` } })
  }
  const seriesOf = (text: string) => ours(text).replaceAll(/ .*/g, '').split('\n').sort()
  const startMs = performance.now()
  await askAll(0)
  const before = await scrape()
  for (let n = 1; n <= 5; n++) await askAll(n)
  const after = await scrape()
  t.strictSame(seriesOf(after), seriesOf(before))

  const metrics = parsePrometheus(after)
  const requests = (route: string, status: string) =>
    metrics.value('latchkey_request_duration_seconds_count', { route, status })
  t.equal(requests('/v1/verify', '2xx'), 6)
  t.equal(requests('/v1/verify', '4xx'), 6)
  t.equal(requests('/v1/keys/:id', '2xx'), 6)
  t.equal(requests('/v1/keys/:id', '4xx'), 6)
  t.equal(requests('/v1/keys', '4xx'), 6)
  t.ok(requests('none', '4xx') >= 6)
  const verifyS = metrics.value('latchkey_request_duration_seconds_sum', {
    route: '/v1/verify',
    status: '2xx',
  })
  t.ok(verifyS > 0 && verifyS * 1000 < performance.now() - startMs, 'in seconds')

  t.equal(metrics.value('latchkey_build_info'), 1)
  t.equal(metrics.value('latchkey_operator_refusals_total', { reason: 'foreign_origin' }), 6)
  t.ok(metrics.value('latchkey_key_cache_reads_total', { result: 'hit' }) > 10)
  t.ok(metrics.value('latchkey_key_cache_reads_total', { result: 'miss' }) >= 7)
  t.ok(metrics.value('latchkey_redis_call_seconds_count', { call: 'count' }) > 10)
  t.ok(metrics.value('latchkey_batch_size_sum', { batch: 'counter' }) > 10)
  await until(
    'the last use is written',
    async () => parsePrometheus(await scrape()).value('latchkey_batch_size_sum', { batch: 'last_used' }) > 0,
  )
  for (const [pool, isBatched] of [
    ['lookups', true],
    ['management', false],
    ['audit', true],
  ] as const) {
    t.ok(metrics.value('latchkey_postgres_call_seconds_sum', { pool }) > 0, pool)
    const calls = metrics.value('latchkey_postgres_call_seconds_count', { pool })
    const waits = metrics.value('latchkey_postgres_wait_seconds_count', { pool })
    // The first connection is no batch, nor is the refusal of an operator.
    t.ok(isBatched ? waits > 0 && waits <= calls : waits >= calls, `${pool}: ${waits} waits, ${calls} calls`)
  }

  await ops.ask('GET', '/admin/counters')
  t.ok(parsePrometheus(await scrape()).value('latchkey_counters_scanned_total') > 0)

  const published = metrics.value('latchkey_publish_seconds_count')
  await deleteUser(instance, userId)
  const later = parsePrometheus(await scrape())
  t.equal(later.value('latchkey_publish_seconds_count'), published + 1)
  t.ok(later.value('latchkey_redis_call_seconds_count', { call: 'publish' }) >= 1)
})
