/**
 * What /metrics shows (Prometheus text format). The hot path only increments numbers; the scrape
 * reads them.
 */
import { collectDefaultMetrics, Gauge, Histogram, Counter as PromCounter, Registry } from 'prom-client'
import { refusalReasons } from '../../schemas/refusal.ts'
import type { Gate } from '../guard/gate.ts'
import type { KeyCache } from '../guard/key-cache.ts'
import { type Counter, outageCauses } from '../stores.ts'

export type BatchName = 'counter' | 'lookups' | 'audit' | 'last_used' | 'rehash'

export interface Metrics {
  /** One more response with this status on the public listener. */
  answered(status: number): void
  refused(reason: string): void
  /** One more refusal that was not recorded, because its address had no budget left. */
  refusedOverBudget(): void
  batch(name: BatchName, size: number): void
  shed(queue: string): void
  auditCommitted(seconds: number): void
  registry: Registry
}

/** Batches waiting for a server, and statements waiting for a connection of a pool. */
const shedQueues = [
  'counter',
  'lookups',
  'audit',
  'postgres_lookups',
  'postgres_management',
  'postgres_audit',
  'postgres_background',
]
const sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
const seconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1]

export function createMetrics(): Metrics {
  const registry = new Registry()
  const registers = [registry]
  const answers = new Array<number>(600).fill(0)

  collectDefaultMetrics({ register: registry })
  new PromCounter({
    name: 'latchkey_requests_total',
    help: 'Answers of the public listener, by status.',
    labelNames: ['status'],
    registers,
    collect() {
      this.reset()
      answers.forEach((count, status) => {
        if (count > 0) this.inc({ status }, count)
      })
    },
  })
  new PromCounter({
    name: 'latchkey_rate_limited_total',
    help: 'Requests refused because their key was over its limit.',
    registers,
    collect() {
      this.reset()
      this.inc(answers[429]!)
    },
  })
  const refusals = new PromCounter({
    name: 'latchkey_refusals_total',
    help: 'Refused authentications, by sub-reason.',
    labelNames: ['reason'],
    registers,
  })
  for (const reason of refusalReasons) refusals.inc({ reason }, 0)
  const overBudget = new PromCounter({
    name: 'latchkey_refusals_over_budget_total',
    help: 'Refusals answered 503 and not recorded, because their client address had used up REFUSALS_PER_ADDRESS_RPM.',
    registers,
  })
  const batchSize = new Histogram({
    name: 'latchkey_batch_size',
    help: 'Items sent to a server in one batch: hits, key look-ups, audit entries, last uses, rehashed keys.',
    labelNames: ['batch'],
    buckets: sizes,
    registers,
  })
  const auditCommit = new Histogram({
    name: 'latchkey_audit_commit_seconds',
    help: 'Time to commit a batch of audit entries.',
    buckets: seconds,
    registers,
  })
  const shed = new PromCounter({
    name: 'latchkey_shed_total',
    help: 'Requests answered 503 because a queue was full.',
    labelNames: ['queue'],
    registers,
  })
  for (const queue of shedQueues) shed.inc({ queue }, 0)

  return {
    registry,
    answered(status) {
      answers[status]!++
    },
    refused: (reason) => refusals.inc({ reason }),
    refusedOverBudget: () => overBudget.inc(),
    batch: (name, size) => batchSize.observe({ batch: name }, size),
    shed: (queue) => shed.inc({ queue }),
    auditCommitted: (took) => auditCommit.observe(took),
  }
}

/** What is read at each scrape. */
export interface Watched {
  counter: Pick<Counter, 'mode' | 'outages'>
  cache: Pick<KeyCache, 'size'>
  gate: Pick<Gate, 'postgresDown'>
}

export function watchGauges(registry: Registry, { counter, cache, gate }: Watched): void {
  const gauge = (name: string, help: string, read: () => number) =>
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(read())
      },
    })
  gauge('latchkey_redis_degraded', '1 while Redis is down and this instance counts by itself.', () =>
    Number(counter.mode === 'local'),
  )
  gauge('latchkey_postgres_degraded', '1 since the last look-up in Postgres failed.', () =>
    Number(gate.postgresDown),
  )
  gauge('latchkey_key_cache_entries', 'Keys in the cache.', () => cache.size)
  new Gauge({
    name: 'latchkey_redis_degraded_cause',
    help: '1 for each cause that keeps a Redis server from counting for this instance.',
    labelNames: ['cause'],
    registers: [registry],
    collect() {
      const causes = counter.outages.map((outage) => outage.cause)
      for (const cause of outageCauses) this.set({ cause }, Number(causes.includes(cause)))
    },
  })
}
