// What /metrics shows, read as Prometheus reads it, without a service around it.
import t from 'tap'
import { refusalReasons } from '../../schemas/refusal.ts'
import { createMetrics, watchGauges } from '../../src/process/metrics.ts'
import type { Outage } from '../../src/stores.ts'

/** The sample with this name and labels, as a number. */
async function sampleOf({ registry }: ReturnType<typeof createMetrics>, sample: string) {
  const lines = (await registry.metrics()).split('\n')
  const line = lines.find((line) => line.startsWith(`${sample} `))
  return line === undefined ? undefined : Number(line.slice(sample.length + 1))
}

t.test('answers are counted by status, and each 429 as rate-limited', async (t) => {
  const metrics = createMetrics()
  for (const status of [200, 200, 401, 429, 429, 429]) metrics.answered(status)
  t.equal(await sampleOf(metrics, 'latchkey_requests_total{status="200"}'), 2)
  t.equal(await sampleOf(metrics, 'latchkey_requests_total{status="401"}'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_requests_total{status="429"}'), 3)
  t.equal(await sampleOf(metrics, 'latchkey_requests_total{status="500"}'), undefined)
  t.equal(await sampleOf(metrics, 'latchkey_rate_limited_total'), 3)
  t.equal(await sampleOf(metrics, 'latchkey_rate_limited_total'), 3, 'the same at the next scrape')
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
})

t.test('batches, commits and shed requests are counted under their own names', async (t) => {
  const metrics = createMetrics()
  metrics.batch('counter', 3)
  metrics.batch('audit', 1)
  metrics.auditCommitted(0.004)
  metrics.shed('postgres_audit')
  t.equal(await sampleOf(metrics, 'latchkey_batch_size_sum{batch="counter"}'), 3)
  t.equal(await sampleOf(metrics, 'latchkey_batch_size_count{batch="audit"}'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_audit_commit_seconds_bucket{le="0.0025"}'), 0)
  t.equal(await sampleOf(metrics, 'latchkey_audit_commit_seconds_bucket{le="0.005"}'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_shed_total{queue="postgres_audit"}'), 1)
  t.equal(await sampleOf(metrics, 'latchkey_shed_total{queue="counter"}'), 0)
})

t.test('the gauges show the state at the moment of the scrape', async (t) => {
  const metrics = createMetrics()
  const counter = { mode: 'shared' as 'shared' | 'local', outages: [] as Outage[] }
  const cache = { size: 7 }
  const gate = { postgresDown: false }
  watchGauges(metrics.registry, { counter, cache, gate })
  const read = () =>
    Promise.all(
      [
        'latchkey_redis_degraded',
        'latchkey_redis_degraded_cause{cause="timeout"}',
        'latchkey_redis_degraded_cause{cause="tls"}',
        'latchkey_postgres_degraded',
        'latchkey_key_cache_entries',
      ].map((sample) => sampleOf(metrics, sample)),
    )
  t.strictSame(await read(), [0, 0, 0, 0, 7])
  counter.mode = 'local'
  counter.outages = [{ cause: 'timeout', reason: 'no reply' }]
  gate.postgresDown = true
  cache.size = 8
  t.strictSame(await read(), [1, 1, 0, 1, 8])
})
