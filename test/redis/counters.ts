// Counters on Redis for tests: the product's connection options, and watched for changes of mode.
import { Redis, type RedisOptions } from 'ioredis'
import type { Test } from 'tap'
import { connectRedis } from '../../src/redis/connect.ts'
import { createRedisCounter, type RedisCounterOptions } from '../../src/redis/counter.ts'
import { parseRedisUrl } from '../../src/rules/redis-url.ts'
import type { Counter } from '../../src/stores.ts'
import { until } from '../process/until.ts'

/** As src/redis/connect.ts has them: an answer soon, or none. */
export const impatient: RedisOptions = {
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  retryStrategy: () => 200,
}

/** As a counter's `patience`: so long that only a Redis that is really away counts as such, however busy the machine is, */
export const patient = 100
/** and as short as a test can wait for, of one that it takes away: half a second. */
export const soonAway = 5

/** A connection of the test's own, to look with. */
export function observe(t: Test, url: string): Redis {
  const redis = new Redis(url)
  redis.on('error', () => {})
  t.teardown(() => redis.disconnect())
  return redis
}

export interface Watched {
  counter: Counter
  /** Each change of mode so far. */
  modes: string[]
}

/** A counter over the product's own connection to the server at this URL, once it is counting there. */
export async function countOn(
  t: Test,
  url: string,
  options: Partial<RedisCounterOptions> = {},
): Promise<Watched> {
  const client = connectRedis(parseRedisUrl(url)!)
  client.on('error', () => {})
  await until('Redis is connected', () => client.status === 'ready')
  const modes: string[] = []
  const counter = createRedisCounter({
    client,
    patience: soonAway,
    onOutage: (outage) => modes.push(outage === null ? 'shared' : 'local'),
    ...options,
  })
  t.teardown(() => counter.close())
  return { counter, modes }
}
