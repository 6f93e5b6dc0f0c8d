// Processes of the service that count in one real Redis Cluster, and keys of theirs by the node or the slot they are counted in.
import slotOf from 'cluster-key-slot'
import { Cluster } from 'ioredis'
import type { Test } from 'tap'
import { minuteOf } from '../../src/rules/window.ts'
import { type Instance, makeKey, makeUser, startInstance } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { externalEnv, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { parsePrometheus } from '../process/prometheus.ts'
import { until } from '../process/until.ts'
import { type RedisCluster, startRedisCluster, useServices } from '../services/index.ts'
import type { RedisClusterOptions } from '../services/redis-cluster.ts'

export type FleetKey = Awaited<ReturnType<typeof makeKey>>

export interface Fleet {
  readonly cluster: RedisCluster
  readonly instances: Serving[]
  readonly urls: string[]
  /** One more instance, in this process: makes users and keys as the command line does, and takes no load. */
  readonly office: Instance
  /** Follows the slots by itself, for a look at what Redis holds. */
  readonly client: Cluster
  /** What the key's counter says in the minute that ends at this moment; null without one. */
  countIn(keyId: string, resetS: number): Promise<number | null>
}

const instancesMax = 3

/** Null where there is no redis-server. */
export async function startFleet(t: Test, options: Partial<RedisClusterOptions> = {}): Promise<Fleet | null> {
  const cluster = await startRedisCluster(t, { masters: 3, ...options })
  if (cluster === null) return null
  const services = await useServices(t)
  const given = { ...services, redisUrl: cluster.urls.join(',') }
  const office = await startInstance(t, given)
  const env = externalEnv(given, { BASE_URL: 'http://latchkey.test' })
  const starting = Array.from({ length: instancesMax }, () => serveLatchkey(t, env))
  const instances = await Promise.all(starting)
  const client = new Cluster(cluster.urls, { slotsRefreshInterval: 1000 })
  client.on('error', () => {})
  t.teardown(() => client.disconnect())
  return {
    cluster,
    instances,
    urls: instances.map(({ url }) => url),
    office,
    client,
    async countIn(keyId, resetS) {
      const count = await client.get(`rl:{${keyId}}:${minuteOf(resetS * 1000) - 1}`)
      return count === null ? null : Number(count)
    },
  }
}

export const verify = (url: string, token: string) => ask(`GET ${url}/v1/verify`, { token })

/** Changes the key by another one of its owner's. */
export async function patch(url: string, manager: FleetKey, key: FleetKey, json: object): Promise<void> {
  const { status } = await ask(`PATCH ${url}/v1/keys/${key.id}`, { token: manager.token, json })
  if (status !== 200) throw new Error(`PATCH answered ${status}`)
}

/** As many keys of one user as asked for, of those that are counted where it is wanted. */
export async function makeKeys(
  { office }: Pick<Fleet, 'office'>,
  count: number,
  wanted: { rateLimitRpm?: number; where?: (slot: number) => boolean } = {},
): Promise<FleetKey[]> {
  const { rateLimitRpm = 1_000_000, where = () => true } = wanted
  const { id: userId } = await makeUser(office)
  const keys: FleetKey[] = []
  while (keys.length < count) {
    const key = await makeKey(office, { userId, rateLimitRpm })
    if (where(slotOf(key.id))) keys.push(key)
  }
  return keys
}

/** Several keys of one user that are counted in one and the same slot. */
export async function makeNeighbours(fleet: Pick<Fleet, 'office'>, count: number): Promise<FleetKey[]> {
  const { id: userId } = await makeUser(fleet.office)
  const bySlot = new Map<number, FleetKey[]>()
  for (;;) {
    const made = await Promise.all(Array.from({ length: 50 }, () => makeKey(fleet.office, { userId })))
    for (const key of made) {
      const slot = slotOf(key.id)
      const keys = [...(bySlot.get(slot) ?? []), key]
      if (keys.length === count) return keys
      bySlot.set(slot, keys)
    }
  }
}

export async function isDegraded({ opsUrl }: Serving): Promise<boolean> {
  const { text } = await ask(`GET ${opsUrl}/metrics`)
  return parsePrometheus(text).value('latchkey_redis_degraded') === 1
}

/** Milliseconds until every instance counts in Redis again. */
export async function untilShared(
  { instances }: Pick<Fleet, 'instances'>,
  boundMs?: number,
): Promise<number> {
  const beganMs = performance.now()
  const isShared = async () => !(await Promise.all(instances.map(isDegraded))).includes(true)
  await until('every instance counts in Redis', isShared, boundMs)
  return performance.now() - beganMs
}

/** What an instance has told of Redis so far. */
export const linesOf = ({ log }: Serving) =>
  log.filter(({ msg }) => /Redis/.test(String(msg))).map(({ msg, reason }) => `${msg} ${reason ?? ''}`.trim())

export const isSlow = (line: string) => /no answer in \d+ ms/.test(line)

/** Why instances counted by themselves so far, other than that a node was too slow for a moment. */
export const reasonsOf = ({ instances }: Pick<Fleet, 'instances'>) =>
  instances.flatMap(linesOf).filter((line) => /is away/.test(line) && !isSlow(line))

const triesMax = 6

/**
 * Does the work again where a node was too slow for an instance meanwhile. On a busy machine an answer may take longer than the
 * 100 ms it is waited for; the instance then counts by itself for a moment, as it should, and that is not what a test of exact
 * counts looks at.
 */
export async function undisturbed<T>(
  t: Test,
  fleet: Pick<Fleet, 'instances'>,
  work: () => Promise<T>,
  /** Which lines are of a disturbance. */
  disturbs: (line: string) => boolean = isSlow,
): Promise<T> {
  const slowSoFar = () => fleet.instances.flatMap(linesOf).filter(disturbs)
  for (let tries = 1; tries <= triesMax; tries++) {
    await untilShared(fleet)
    const before = slowSoFar().length
    const result = await work()
    await untilShared(fleet)
    const slow = slowSoFar().slice(before)
    if (slow.length === 0) return result
    t.comment(`disturbed, so done again: ${slow.join('; ')}`)
  }
  throw new Error(`disturbed in each of ${triesMax} tries`)
}
