/**
 * What /metrics shows (Prometheus text format). The hot path only increments numbers; the scrape
 * reads them. Each label has a fixed set of values: none of them comes from a client.
 */
import { collectDefaultMetrics, Gauge, type Metric, Counter as PromCounter, Registry } from 'prom-client'
import { operatorRefusalReasons, refusalReasons } from '../../schemas/refusal.ts'
import type { Traffic } from '../stores.ts'
import { version } from '../version.ts'
import { poolBounds } from '../wiring/pools.ts'
import { createHistograms, secondsBounds } from './histogram.ts'
import { createTraffic, latencyBoundsS } from './traffic.ts'

const batchNames = ['counter', 'lookups', 'audit', 'last_used', 'rehash'] as const
const redisCalls = ['count', 'publish'] as const
const pools = Object.keys(poolBounds)

export interface Metrics {
  /**
   * One more response with this status on the public listener. `route`: the pattern that it
   * matched, if any. `seconds`: from the headers of the request to those of the response; unknown
   * for what the HTTP parser refused.
   */
  answered(status: number, route?: string, seconds?: number): void
  /** What the public listener has answered so far, for dashboards. */
  traffic(): Traffic
  refused(reason: string): void
  /** One more refusal that was not recorded, because its address had no budget left. */
  refusedOverBudget(): void
  operatorRefused(reason: string): void
  batch(name: (typeof batchNames)[number], size: number): void
  shed(queue: string): void
  auditCommit(seconds: number): void
  redisCall(call: (typeof redisCalls)[number], seconds: number): void
  redisOutage(): void
  /** This instance has found a minute of usage to be incomplete. */
  usageIncomplete(): void
  /** How many counters were read in Redis, for usage or a dashboard. */
  countersScanned(counters: number): void
  /** How long work waited for a connection of this pool, or until it gave up. */
  postgresWait(pool: string, seconds: number): void
  postgresCall(pool: string, seconds: number): void
  /** How long after its commit every instance saw a change. */
  published(seconds: number): void
  registry: Registry
}

/** Batches waiting for a server, and statements waiting for a connection of a pool. */
const shedQueues = ['counter', 'lookups', 'audit', ...pools.map((pool) => `postgres_${pool}`)]
const sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]

let processMetrics: Registry | undefined

/**
 * Made once per process, because their collector never stops and holds on to its registry: an
 * application may open and close many guards, and would leak a registry for each.
 */
function metricsOfProcess() {
  if (processMetrics === undefined) {
    processMetrics = new Registry()
    // A timer that measures the lag of the event loop, which includes these 20 ms. The default of 10
    // wakes an idle process twice as often.
    collectDefaultMetrics({ register: processMetrics, eventLoopMonitoringPrecision: 20 })
  }
  return processMetrics.getMetricsAsArray() as unknown as Metric[]
}

export function createMetrics(): Metrics {
  const registry = new Registry()
  for (const metric of metricsOfProcess()) registry.registerMetric(metric)
  buildInfo(registry)
  const counter = counters(registry)
  const histogram = histograms(registry)

  const overBudget = new PromCounter({
    name: 'latchkey_refusals_over_budget_total',
    help: 'Refusals answered 503 and not recorded, because their client address had used up REFUSALS_PER_ADDRESS_RPM.',
    registers: [registry],
  })
  const redisOutages = new PromCounter({
    name: 'latchkey_redis_outages_total',
    help: 'How often Redis, or one of its nodes, went down for this instance.',
    registers: [registry],
  })
  const incompleteMinutes = new PromCounter({
    name: 'latchkey_usage_incomplete_total',
    help: 'Minutes of usage that this instance has found to be incomplete.',
    registers: [registry],
  })
  const scanned = new PromCounter({
    name: 'latchkey_counters_scanned_total',
    help: 'Counters read in Redis for the usage history and for operators.',
    registers: [registry],
  })
  const auditCommits = createHistograms(registry, {
    name: 'latchkey_audit_commit_seconds',
    help: 'Time to commit a batch of refusals, or until that failed.',
    bounds: secondsBounds,
  }).series({})
  const published = createHistograms(registry, {
    name: 'latchkey_publish_seconds',
    help: 'Time from the commit of a change until every instance sees it.',
    bounds: latencyBoundsS,
  }).series({})

  return {
    registry,
    ...createTraffic(registry),
    refused: counter(
      'latchkey_refusals_total',
      'Requests refused with a 401, by reason.',
      'reason',
      refusalReasons,
    ),
    refusedOverBudget: () => overBudget.inc(),
    operatorRefused: counter(
      'latchkey_operator_refusals_total',
      'Requests refused by the ops listener, by reason.',
      'reason',
      operatorRefusalReasons,
    ),
    batch: histogram(
      'latchkey_batch_size',
      'Items sent to a server in one batch: hits, key look-ups, audit entries, last uses, rehashed keys.',
      'batch',
      batchNames,
      sizes,
    ),
    shed: counter(
      'latchkey_shed_total',
      'How often a queue was full. Nearly always, a request was answered 503.',
      'queue',
      shedQueues,
    ),
    auditCommit: auditCommits.observe,
    redisCall: histogram(
      'latchkey_redis_call_seconds',
      'Time until Redis answered a call.',
      'call',
      redisCalls,
    ),
    redisOutage: () => redisOutages.inc(),
    usageIncomplete: () => incompleteMinutes.inc(),
    countersScanned: (counters) => scanned.inc(counters),
    postgresWait: histogram(
      'latchkey_postgres_wait_seconds',
      'Time that work waited for a connection to Postgres, or until it gave up.',
      'pool',
      pools,
    ),
    postgresCall: histogram(
      'latchkey_postgres_call_seconds',
      'Time that work held a connection to Postgres.',
      'pool',
      pools,
    ),
    published: published.observe,
  }
}

function buildInfo(registry: Registry) {
  new Gauge({
    name: 'latchkey_build_info',
    help: 'Always 1. The labels name the version and its Node.js.',
    labelNames: ['version', 'node'],
    registers: [registry],
  }).set({ version, node: process.versions.node }, 1)
}

/** Every value of the label is there from the start, so that a rate can be computed. */
const counters =
  (registry: Registry) => (name: string, help: string, label: string, values: readonly string[]) => {
    const counter = new PromCounter({ name, help, labelNames: [label], registers: [registry] })
    for (const value of values) counter.inc({ [label]: value }, 0)
    return (value: string) => counter.inc({ [label]: value })
  }

const histograms =
  (registry: Registry) =>
  (name: string, help: string, label: string, values: readonly string[], bounds = secondsBounds) => {
    const family = createHistograms(registry, { name, help, bounds })
    const all = new Map(values.map((value) => [value, family.series({ [label]: value })]))
    return (value: string, observed: number) => all.get(value)?.observe(observed)
  }
