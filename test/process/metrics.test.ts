// What /metrics shows, read as Prometheus reads it, without a service around it.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import type { CountingMode } from '../../schemas/health.ts'
import { refusalReasons } from '../../schemas/refusal.ts'
import { watchGauges } from '../../src/process/gauges.ts'
import { quantile } from '../../src/process/histogram.ts'
import { createMetrics } from '../../src/process/metrics.ts'
import { latencyBoundsS } from '../../src/process/traffic.ts'
import type { Outage } from '../../src/stores.ts'
import { version } from '../../src/version.ts'
import { until } from './until.ts'

/** The sample with this name and labels, as a number. */
async function sampleOf({ registry }: ReturnType<typeof createMetrics>, sample: string) {
  const lines = (await registry.metrics()).split('\n')
  const line = lines.find((line) => line.startsWith(`${sample} `))
  return line === undefined ? undefined : Number(line.slice(sample.length + 1))
}

t.test('answers are counted by status, and each 429 as rate-limited', async (t) => {
  const metrics = createMetrics()
  for (const status of [200, 200, 299, 401, 429, 429, 429]) metrics.answered(status)
  t.equal(await sampleOf(metrics, 'latchkey_requests_total{status="200"}'), 2)
  t.equal(await sampleOf(metrics, 'latchkey_requests_total{status="299"}'), 1, 'also one that is unusual')
  t.equal(await sampleOf(metrics, 'latchkey_requests_total{status="401"}'), 1)
  t.strictSame(metrics.traffic().answers, [0, 0, 3, 0, 4, 0])
  t.equal(await sampleOf(metrics, 'latchkey_requests_total{status="429"}'), 3)
  for (const status of [201, 500])
    t.equal(await sampleOf(metrics, `latchkey_requests_total{status="${status}"}`), 0, 'from the start')
  t.equal(await sampleOf(metrics, 'latchkey_requests_total{status="418"}'), undefined)
  t.equal(await sampleOf(metrics, 'latchkey_rate_limited_total'), 3)
  t.equal(await sampleOf(metrics, 'latchkey_rate_limited_total'), 3, 'the same at the next scrape')
  t.ok((await sampleOf(metrics, 'process_resident_memory_bytes'))! > 0, 'beside those of the process')
})

t.test('durations are counted by route and class of status', async (t) => {
  const metrics = createMetrics()
  metrics.answered(200, '/v1/verify', 0.001)
  metrics.answered(204, '/v1/verify', 0.3)
  metrics.answered(429, '/v1/verify', 0.002)
  metrics.answered(404, undefined, 100)
  metrics.answered(400)
  const bucket = (route: string, status: string, le: string) =>
    sampleOf(
      metrics,
      `latchkey_request_duration_seconds_bucket{route="${route}",status="${status}",le="${le}"}`,
    )
  t.equal(await bucket('/v1/verify', '2xx', '0.0005'), 0)
  t.equal(await bucket('/v1/verify', '2xx', '0.001'), 1, 'a bound belongs to its bucket')
  t.equal(await bucket('/v1/verify', '2xx', '0.5'), 2)
  t.equal(await bucket('/v1/verify', '4xx', '+Inf'), 1)
  t.equal(await bucket('none', '4xx', '60'), 0)
  t.equal(await bucket('none', '4xx', '+Inf'), 1)
  t.equal(metrics.traffic().latencies.at(-1), 1, 'for the dashboard too')
  const of = 'latchkey_request_duration_seconds'
  t.equal(await sampleOf(metrics, `${of}_sum{route="/v1/verify",status="2xx"}`), 0.301)
  t.equal(await sampleOf(metrics, `${of}_count{route="/v1/verify",status="2xx"}`), 2)
})

t.test('the difference of two readings of the traffic is what happened in between', async (t) => {
  const metrics = createMetrics()
  metrics.answered(200, '/v1/keys', 10)
  const before = metrics.traffic()
  for (let n = 0; n < 98; n++) metrics.answered(200, '/v1/verify', 0.0007)
  metrics.answered(429, '/v1/verify', 0.02)
  metrics.answered(503, '/v1/keys', 0.9)
  for (let n = 0; n < 2; n++) metrics.answered(401)
  const after = metrics.traffic()
  const grew = (of: 'answers' | 'latencies') => after[of].map((count, i) => count - before[of][i]!)
  t.strictSame(grew('answers'), [0, 0, 98, 0, 3, 1])
  t.strictSame([after.rateLimited, after.refused], [1, 2])
  t.equal(quantile(0.98, latencyBoundsS, grew('latencies')), 0.001)
  t.equal(quantile(0.49, latencyBoundsS, grew('latencies')), 0.00075, 'interpolated within a bucket')
  t.equal(quantile(0.99, latencyBoundsS, grew('latencies')), 0.025)
  t.equal(quantile(1, latencyBoundsS, grew('latencies')), 1)
  t.equal(quantile(0.5, latencyBoundsS, [2, 0]), 0.00025, 'from zero in the first one')
  t.equal(quantile(0.5, latencyBoundsS, [...latencyBoundsS.map(() => 0), 3]), 60, 'no more is known')
  t.equal(quantile(0.5, latencyBoundsS, after.latencies.fill(0)), null)
})

t.test('every refusal reason is there from the start, so that a rate can be computed', async (t) => {
  const metrics = createMetrics()
  metrics.refused('revoked')
  metrics.refusedOverBudget()
  for (const reason of refusalReasons) {
    const count = await sampleOf(metrics, `latchkey_refusals_total{reason="${reason}"}`)
    t.equal(count, reason === 'revoked' ? 1 : 0, reason)
  }
  t.equal(await sampleOf(metrics, 'latchkey_refusals_over_budget_total'), 1)
  for (const queue of ['counter', 'lookups', 'audit', 'postgres_management'])
    t.equal(await sampleOf(metrics, `latchkey_shed_total{queue="${queue}"}`), 0, queue)
})

t.test('batches, commits and shed requests are counted under their own names', async (t) => {
  const metrics = createMetrics()
  metrics.batch('counter', 3)
  metrics.batch('audit', 1)
  metrics.auditCommit(0.004)
  metrics.shed('postgres_audit')
  metrics.redisCall('publish', 0.2)
  metrics.postgresWait('audit', 0.04)
  metrics.postgresCall('audit', 0.02)
  metrics.postgresCall('operator', 0.02)
  metrics.published(5.1)
  metrics.countersScanned(300)
  metrics.operatorRefused('wrong_token')
  t.equal(await sampleOf(metrics, 'latchkey_batch_size_sum{batch="counter"}'), 3)
  t.equal(await sampleOf(metrics, 'latchkey_batch_size_bucket{batch="counter",le="2"}'), 0)
  t.equal(await sampleOf(metrics, 'latchkey_batch_size_bucket{batch="counter",le="4"}'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_batch_size_count{batch="audit"}'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_audit_commit_seconds_bucket{le="0.0025"}'), 0)
  t.equal(await sampleOf(metrics, 'latchkey_audit_commit_seconds_bucket{le="0.005"}'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_shed_total{queue="postgres_audit"}'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_shed_total{queue="counter"}'), 0)
  t.equal(await sampleOf(metrics, 'latchkey_redis_call_seconds_sum{call="publish"}'), 0.2)
  t.equal(await sampleOf(metrics, 'latchkey_postgres_call_seconds_sum{pool="operator"}'), 0.02)
  t.equal(await sampleOf(metrics, 'latchkey_redis_call_seconds_count{call="count"}'), 0)
  t.equal(await sampleOf(metrics, 'latchkey_postgres_wait_seconds_sum{pool="audit"}'), 0.04)
  t.equal(await sampleOf(metrics, 'latchkey_postgres_call_seconds_sum{pool="audit"}'), 0.02)
  t.equal(await sampleOf(metrics, 'latchkey_publish_seconds_bucket{le="5"}'), 0)
  t.equal(await sampleOf(metrics, 'latchkey_publish_seconds_bucket{le="10"}'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_counters_scanned_total'), 300)
  metrics.redisOutage()
  t.equal(await sampleOf(metrics, 'latchkey_redis_outages_total'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_operator_refusals_total{reason="wrong_token"}'), 1)
})

t.test('the version and that of Node.js are labels', async (t) => {
  const labels = `version="${version}",node="${process.versions.node}"`
  t.equal(await sampleOf(createMetrics(), `latchkey_build_info{${labels}}`), 1)
})

t.test('the gauges show the state at the moment of the scrape', async (t) => {
  const metrics = createMetrics()
  const counter = { mode: (): CountingMode => 'shared', outages: (): Outage[] => [] }
  const cache = { size: () => 7 }
  const gate = { cacheHits: 3, cacheMisses: 1 }
  let isDown = false
  const postgresDown = () => isDown
  const collector = { lagS: () => 2.5, rollUpLagS: () => 70 }
  watchGauges(metrics.registry, { counter, cache, gate, postgresDown, collector })
  const read = () =>
    Promise.all(
      [
        'latchkey_redis_degraded',
        'latchkey_redis_degraded_cause{cause="timeout"}',
        'latchkey_redis_degraded_cause{cause="tls"}',
        'latchkey_postgres_degraded',
        'latchkey_usage_lag_seconds',
        'latchkey_usage_rollup_lag_seconds',
        'latchkey_key_cache_entries',
        'latchkey_key_cache_reads_total{result="hit"}',
        'latchkey_key_cache_reads_total{result="miss"}',
      ].map((sample) => sampleOf(metrics, sample)),
    )
  t.strictSame(await read(), [0, 0, 0, 0, 2.5, 70, 7, 3, 1])
  counter.mode = () => 'local'
  counter.outages = () => [{ cause: 'timeout', reason: 'no reply' }]
  isDown = true
  cache.size = () => 8
  gate.cacheHits++
  t.strictSame(await read(), [1, 1, 0, 1, 2.5, 70, 8, 4, 1])
  counter.outages = () => (['timeout', 'tls'] as const).map((cause) => ({ cause, reason: 'not now' }))
  t.strictSame((await read()).slice(1, 3), [1, 1], 'servers of a cluster may fail differently')
  counter.mode = () => 'memory'
  t.equal((await read())[0], 0, 'there is no Redis that could be down')
})

t.test('metrics that nobody uses any more are freed, and those of the process are made once', async (t) => {
  const [one, other] = [createMetrics(), createMetrics()].map(({ registry }) =>
    registry.getSingleMetric('process_resident_memory_bytes'),
  )
  t.ok(one && one === other)
  setFlagsFromString('--expose-gc')
  const collectGarbage = runInNewContext('gc') as () => void
  const registry = new WeakRef(createMetrics().registry)
  await until('they are freed', () => {
    collectGarbage()
    return registry.deref() === undefined
  })
})
