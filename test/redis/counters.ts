// Counters on Redis for tests, which report how they switch between counting in Redis and counting
// locally.
import slotOf from 'cluster-key-slot'
import { type Cluster, Redis } from 'ioredis'
import type { Test } from 'tap'
import { connectRedis } from '../../src/redis/connect.ts'
import { createRedisCounter, type RedisCounterOptions } from '../../src/redis/counter.ts'
import { newId } from '../../src/rules/id.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import type { Counter, Outage } from '../../src/stores.ts'
import { until } from '../process/until.ts'

/**
 * As a counter's `patience`: only a Redis that is really down counts as such, however busy the
 * machine is.
 */
export const patient = 100
/** For a Redis that the test takes down: two seconds, which a busy one beside it does not need. */
export const soonDown = 20

/** An id that this node of a cluster counts, unless its slot has moved. */
export function idOnNode(node: number, masters: number): string {
  for (;;) {
    const id = newId('apk_')
    if (Math.floor((slotOf(id) * masters) / 16_384) === node) return id
  }
}

/** A connection of the test's own, to look with. */
export function observe(t: Test, url: string): Redis {
  const redis = new Redis(url)
  redis.on('error', () => {})
  t.teardown(() => redis.disconnect())
  return redis
}

export interface Counting<Client = Redis | Cluster> {
  client: Client
  counter: Counter
  /** What the counter has reported so far; null: it counts in Redis again. */
  outages: (Outage | null)[]
  causes(): (Outage['cause'] | null)[]
  untilShared(): Promise<unknown>
  /** Until the present outage has this cause. */
  untilDown(cause?: Outage['cause']): Promise<unknown>
}

export function countWith<Client extends Redis | Cluster>(
  t: Test,
  client: Client,
  options: Partial<RedisCounterOptions> = {},
): Counting<Client> {
  const outages: (Outage | null)[] = []
  const onOutage = (outage: Outage | null) => outages.push(outage)
  const counter = createRedisCounter({ client, patience: patient, onOutage, ...options })
  t.teardown(() => counter.close())
  return {
    client,
    counter,
    outages,
    causes: () => outages.map((outage) => outage?.cause ?? null),
    untilShared: () => until('Redis counts', () => counter.mode() === 'shared'),
    untilDown: (cause) =>
      until(`the outage is reported: ${cause}`, () =>
        counter.outages().some((outage) => cause === undefined || outage.cause === cause),
      ),
  }
}

/** Over a connection as the service makes it. */
export const countAt = (t: Test, urls: string, options: Partial<RedisCounterOptions> = {}) =>
  countWith(t, connectRedis(parseRedisUrl(urls)!), options)
