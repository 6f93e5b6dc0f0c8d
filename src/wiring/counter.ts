/** The counter: on Redis if there is one, else in memory. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Config } from '../config.ts'
import { createMemoryCounter } from '../memory/counter.ts'
import type { Counter } from '../stores.ts'
import type { OpenOptions } from './options.ts'

/** How long to wait for Redis to count. After that, the instance starts without it. */
const redisWaitMs = 1000

/** `alone`: no other process caches keys of this database. */
export async function openCounter(
  { redis: servers }: Config,
  { redis, onOutage, onOtherServer, onBatch, onRedisCall, onScanned, onlyReads, patience = 1 }: OpenOptions,
  alone: boolean,
): Promise<Counter> {
  if (onlyReads || (servers === null && redis === undefined)) return createMemoryCounter({ alone })
  // Loaded on demand: a command that needs no Redis is a fifth faster without it.
  const [{ connectRedis, requireRedisDatabase }, { createRedisCounter }] = await Promise.all([
    import('../redis/connect.ts'),
    import('../redis/counter.ts'),
  ])
  const client = redis ?? connectRedis(servers!)
  const counter = createRedisCounter({
    client,
    patience,
    onOutage,
    onOtherServer,
    onBatch,
    onCall: onRedisCall,
    onScanned,
  })
  try {
    await requireRedisDatabase(client)
  } catch (error) {
    await counter.close()
    throw error
  }
  const untilMs = performance.now() + redisWaitMs * patience
  while (counter.mode() === 'local' && performance.now() < untilMs) await pause(10)
  return counter
}
