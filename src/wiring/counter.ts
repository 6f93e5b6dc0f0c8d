/** The counter: on Redis if there is one, else in memory. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../config.ts'
import { createMemoryCounter } from '../memory/counter.ts'
import { connectRedis, requireDatabase } from '../redis/connect.ts'
import { createRedisCounter } from '../redis/counter.ts'
import type { Counter } from '../stores.ts'
import type { OpenOptions } from './options.ts'

/** A server that does not count by then is down, and the instance starts without it. */
const redisWaitMs = 1000

/** `alone`: no other process caches keys of this database. */
export async function openCounter(
  { redis: servers }: Config,
  { redis, onOutage, onOtherServer, onBatch, onRedisCall, onScanned, patience = 1 }: OpenOptions,
  alone: boolean,
): Promise<Counter> {
  const client = redis ?? (servers && connectRedis(servers))
  if (client === null) return createMemoryCounter({ alone })
  const counter = createRedisCounter({
    client,
    patience,
    ...(onOutage && { onOutage }),
    ...(onOtherServer && { onOtherServer }),
    ...(onBatch && { onBatch }),
    ...(onRedisCall && { onCall: onRedisCall }),
    ...(onScanned && { onScanned }),
  })
  try {
    await requireDatabase(client)
  } catch (error) {
    await counter.close()
    throw error
  }
  const untilMs = performance.now() + redisWaitMs * patience
  while (counter.mode === 'local' && performance.now() < untilMs) await sleep(10)
  return counter
}
