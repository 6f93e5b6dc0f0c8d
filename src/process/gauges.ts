/** What /metrics reads from the running service at each scrape. */
import { Gauge, Counter as PromCounter, type Registry } from 'prom-client'
import { outageCauses } from '../../schemas/health.ts'
import type { Gate } from '../guard/gate.ts'
import type { KeyCache } from '../guard/key-cache.ts'
import type { Counter } from '../stores.ts'
import type { Collector } from '../usage/collector.ts'

export interface Watched {
  counter: Pick<Counter, 'mode' | 'outages'>
  cache: Pick<KeyCache, 'size'>
  gate: Pick<Gate, 'cacheHits' | 'cacheMisses'>
  postgresDown: () => boolean
  collector: Pick<Collector, 'lagS' | 'rollUpLagS'>
}

export function watchGauges(
  registry: Registry,
  { counter, cache, gate, postgresDown, collector }: Watched,
): void {
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
    Number(counter.mode() === 'local'),
  )
  gauge(
    'latchkey_postgres_degraded',
    '1 if the last look-up in Postgres, or the last report to it, failed.',
    () => Number(postgresDown()),
  )
  gauge(
    'latchkey_usage_lag_seconds',
    'By how much the next minute of usage to be stored is late.',
    collector.lagS,
  )
  gauge(
    'latchkey_usage_rollup_lag_seconds',
    'For how long rolling up hours and days of usage has been due.',
    collector.rollUpLagS,
  )
  gauge('latchkey_key_cache_entries', 'Keys in the cache.', () => cache.size())
  new Gauge({
    name: 'latchkey_redis_degraded_cause',
    help: '1 for each cause that keeps a Redis server from counting for this instance.',
    labelNames: ['cause'],
    registers: [registry],
    collect() {
      const causes = counter.outages().map((outage) => outage.cause)
      for (const cause of outageCauses) this.set({ cause }, Number(causes.includes(cause)))
    },
  })
  new PromCounter({
    name: 'latchkey_key_cache_reads_total',
    help: 'Requests by whether their key was in the cache. A cached key may still be read again.',
    labelNames: ['result'],
    registers: [registry],
    collect() {
      this.reset()
      this.inc({ result: 'hit' }, gate.cacheHits)
      this.inc({ result: 'miss' }, gate.cacheMisses)
    },
  })
}
