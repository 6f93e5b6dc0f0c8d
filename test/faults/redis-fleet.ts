/** Two instances as processes, on a database and a Redis of their own that can be made to fail. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import type { Test } from 'tap'
import { minuteOf } from '../../src/rules/window.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { type Env, externalEnv, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { type PrivateRedis, startPrivateRedis, useServices } from '../services/index.ts'
import { type Network, startNetwork } from './redis-network.ts'

export interface FleetKey {
  id: string
  token: string
}

export interface Fleet {
  redis: PrivateRedis
  /** A connection of the test's own, which does not go through the networks. */
  look: Redis
  instances: Serving[]
  urls: string[]
  /** Between the first instances and Redis, as many as the fleet was given. */
  networks: Network[]
  /** A key whose owner owns all keys of the fleet. */
  manager: FleetKey
  makeKey(rateLimitRpm: number): Promise<FleetKey>
}

export interface FleetOptions {
  /** How many of the instances, the first ones, reach Redis by a network of their own. */
  networks?: number
  env?: Env
}

const instancesMade = 2

/** Null where there is no redis-server: the test is then skipped by name. */
export async function startFleet(t: Test, { networks = 0, env = {} }: FleetOptions = {}) {
  const redis = await startPrivateRedis(t)
  if (redis === null) return null
  const services = await useServices(t)
  // Back soon after the server is, so that no time of the test's own is counted as the product's.
  const look = services.connectRedis({ host: '127.0.0.1', port: redis.port, retryStrategy: () => 20 })
  look.on('error', () => {})

  const first = await startInstance(t, { ...services, redisUrl: redis.url })
  const manager = await makeCaller(first)
  await first.close()

  const between = await Promise.all(Array.from({ length: networks }, () => startNetwork(t, redis.url)))
  const instances: Serving[] = []
  for (let i = 0; i < instancesMade; i++) {
    const redisUrl = between[i]?.url ?? redis.url
    instances.push(await serveLatchkey(t, externalEnv({ ...services, redisUrl }, env)))
  }
  const urls = instances.map(({ url }) => url)

  async function makeKey(rateLimitRpm: number): Promise<FleetKey> {
    const json = { name: 'a key', rate_limit_rpm: rateLimitRpm }
    const { status, body } = await ask(`POST ${urls[0]}/v1/keys`, { token: manager.token, json })
    if (status !== 201) throw new Error(`a key was not made: ${status}`)
    return { id: body.id, token: body.plain_key }
  }
  const fleet: Fleet = { redis, look, instances, urls, networks: between, manager, makeKey }
  return fleet
}

/** A scrape costs milliseconds of a processor that the load needs too. */
const scrapeEveryMs = 25

/** Resolves when the instance's gauge says that Redis is away, or that it is not. */
export const untilDegraded = ({ opsUrl }: Serving, wanted: 0 | 1): Promise<true> =>
  until(`latchkey_redis_degraded is ${wanted}`, async () => {
    await pause(scrapeEveryMs)
    const { text } = await ask(`GET ${opsUrl}/metrics`)
    // What is read here dozens of times a second is parsed strictly elsewhere.
    const [, value] = /^latchkey_redis_degraded ([01])$/m.exec(text) ?? []
    if (value === undefined) throw new Error('the gauge is not there')
    return value === String(wanted)
  })

export interface Told {
  what: 'away' | 'back'
  /** Date.now(). */
  at: number
}

/** What the instance has said of Redis so far, in order. */
export const toldOfRedis = ({ log }: Serving): Told[] =>
  log.flatMap(({ msg, time }): Told[] => {
    const at = Date.parse(String(time))
    if (String(msg).startsWith('Redis is away')) return [{ what: 'away', at }]
    return msg === 'counting in Redis again' ? [{ what: 'back', at }] : []
  })

/** What Redis has counted for the key in that minute. */
export const countedIn = async ({ look }: Fleet, { id }: FleetKey, minute: number): Promise<number> =>
  Number(await look.get(`rl:{${id}}:${minute}`))

/** The minute of Redis's clock, and what it has counted for the key in it. */
export async function countedNow(fleet: Fleet, key: FleetKey) {
  const [seconds] = await fleet.look.time()
  const minute = minuteOf(Number(seconds) * 1000)
  return { minute, count: await countedIn(fleet, key, minute) }
}

/** Names of the service's keys in Redis, and of those that would stay for ever (or longer than the 10 minutes of a version). */
export async function keysOf({ look }: Fleet): Promise<{ names: string[]; lasting: string[] }> {
  const names: string[] = []
  for await (const some of look.scanStream({ match: 'rl:*', count: 500 })) names.push(...some)
  const ttls = await Promise.all(names.map((name) => look.ttl(name)))
  // -2: it has run out since.
  return { names, lasting: names.filter((_, i) => ttls[i] === -1 || ttls[i]! > 600) }
}
