// The ways in which Redis fails, and the fleet that they happen to.
import type { Redis } from 'ioredis'
import type { Test } from 'tap'
import type { Env, Serving } from '../process/latchkey.ts'
import { type PrivateRedis, startPrivateRedis } from '../services/index.ts'
import { type Fleet, startFleet } from './fleet.ts'
import { type Network, startNetwork } from './network.ts'

export interface RedisFleet extends Fleet {
  server: PrivateRedis
  redis: Redis
  /** Between the first instances and Redis. */
  networks: Network[]
}

/**
 * Two instances; the first `networks` of them reach Redis through a network of their own. Null
 * without a redis-server.
 */
export async function startRedisFleet(
  t: Test,
  { networks: count = 0, env = {} }: { networks?: number; env?: Env } = {},
): Promise<RedisFleet | null> {
  const server = await startPrivateRedis(t)
  if (server === null) return null
  const networks = await Promise.all(Array.from({ length: count }, () => startNetwork(t, server.url)))
  const each = [0, 1].map((i): Env => (networks[i] ? { REDIS_URL: networks[i].url } : {}))
  const fleet = await startFleet(t, server.url, { env, each })
  return { ...fleet, server, redis: fleet.redis as Redis, networks }
}

export interface Fault {
  begin(fleet: RedisFleet): Promise<unknown>
  /** Resolves when Redis can count again. Absent: it can as soon as `begin` has resolved. */
  end?(fleet: RedisFleet): Promise<unknown>
  /** The instances that have to count by themselves in the meantime. */
  affects(fleet: RedisFleet): readonly Serving[]
  /** Whether Redis still has its counts afterwards. */
  losesNothing?: boolean
}

const all = ({ instances }: RedisFleet) => instances
const none = () => []

export const killed: Fault = {
  begin: ({ server }) => server.kill(),
  end: ({ server }) => server.restart(),
  affects: all,
}

/** Stopped and started again, empty, before a connection is tried again. */
export const restarted: Fault = { begin: ({ server }) => server.restart(), affects: all }

export const frozen: Fault = {
  begin: ({ server }) => server.freeze(),
  end: ({ server }) => server.thaw(),
  affects: all,
}

/**
 * Nothing passes between Redis and the instances with these numbers, and no connection is closed.
 */
export const blackHoled = (...which: number[]): Fault => ({
  begin: ({ networks }) => Promise.all(which.map((i) => networks[i]!.blackHole())),
  end: ({ networks }) => Promise.all(which.map((i) => networks[i]!.heal())),
  affects: ({ instances }) => which.map((i) => instances[i]!),
  losesNothing: true,
})

/** Reads are answered, writes are refused. */
export const outOfMemory: Fault = {
  async begin({ redis }) {
    await redis.config('SET', 'maxmemory-policy', 'noeviction')
    await redis.config('SET', 'maxmemory', '1')
  },
  end: ({ redis }) => redis.config('SET', 'maxmemory', '0'),
  affects: all,
}

export const scriptsFlushed: Fault = {
  begin: ({ redis }) => redis.script('FLUSH'),
  affects: none,
  losesNothing: true,
}

export const allFlushed: Fault = { begin: ({ redis }) => redis.flushall(), affects: none }
