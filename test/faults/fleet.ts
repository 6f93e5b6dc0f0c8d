// A fleet: instances of the service as processes, on one Postgres and on a Redis or Redis Cluster
// that may fail.
import slotOf from 'cluster-key-slot'
import { Cluster, type Redis } from 'ioredis'
import type { Test } from 'tap'
import { Unavailable } from '../../src/stores.ts'
import { type Answer, type Instance, makeKey, makeUser, startInstance } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { type Env, externalEnv, runLatchkey, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { findRedisServer } from '../services/binaries.ts'
import { startPrivateRedis, useServices } from '../services/index.ts'
import { scaled } from '../soak.ts'

export interface Fleet {
  readonly urls: readonly string[]
  /** None if they run in this process. */
  readonly instances: readonly Serving[]
  /**
   * One more instance, in this process: creates users and keys as the command line does, and takes
   * no load.
   */
  readonly office: Instance
  /** The test's own connection, to look into Redis. */
  readonly redis: Redis | Cluster
  /** For the command line beside the instances. */
  readonly env: Env
  /** What the key's counter says in the minute that ends at `resetS`; null without one. */
  countIn(keyId: string, resetS: number): Promise<number | null>
  /** The log of all instances so far. */
  log(): Record<string, unknown>[]
}

export interface FleetOptions {
  /** For all instances, and for the command line. */
  env?: Env
  /** One for each instance. */
  each?: readonly Env[]
}

/** `redisUrl`: several URLs, separated by commas, are a cluster. */
export async function startFleet(
  t: Test,
  redisUrl: string,
  { env: more = {}, each = Array.from({ length: scaled(2, 3) }, () => ({})) }: FleetOptions = {},
): Promise<Fleet> {
  const services = { ...(await useServices(t)), redisUrl }
  const env = externalEnv(services, more)
  const office = await startInstance(t, services, more)
  const instances = await Promise.all(each.map((own) => serveLatchkey(t, { ...env, ...own })))
  const nodes = redisUrl.split(',')
  const redis =
    nodes.length > 1
      ? new Cluster(nodes, { slotsRefreshInterval: 1000 })
      : // Back soon after the server, so that no time of the test's own counts as the product's.
        services.connectRedis({
          host: '127.0.0.1',
          port: Number(new URL(redisUrl).port),
          retryStrategy: () => 20,
        })
  redis.on('error', () => {})
  t.teardown(() => redis.disconnect())
  const urls = instances.map(({ url }) => url)
  const log = () => instances.flatMap(({ log }) => log)
  return { urls, instances, office, redis, env, countIn: counterOf(redis), log }
}

/**
 * Where there is no redis-server that processes could share, the instances and the Redis run in
 * this process.
 */
export async function startAnyFleet(t: Test): Promise<Fleet> {
  if ((await findRedisServer()) !== null) return startFleet(t, (await startPrivateRedis(t))!.url)
  const services = await useServices(t)
  const [office, ...others] = await Promise.all([0, 1, 2].map(() => startInstance(t, services)))
  const redis = services.connectRedis()
  return {
    urls: others.map(({ url }) => url),
    instances: [],
    office: office!,
    redis,
    env: externalEnv(services),
    countIn: counterOf(redis),
    log: () => others.flatMap(({ log }) => log),
  }
}

const counterOf = (redis: Redis | Cluster) => async (keyId: string, resetS: number) => {
  const count = await redis.get(`rl:{${keyId}}:${resetS / 60 - 1}`)
  return count === null ? null : Number(count)
}

export type FleetKey = Awaited<ReturnType<typeof makeKey>>
export const plenty = 1_000_000
const madeAtOnce = 50

/** Keys of one user. `where`: only those whose slot in a cluster fits. */
export async function makeKeys(
  { office }: Pick<Fleet, 'office'>,
  count: number,
  wanted: { rateLimitRpm?: number; userId?: string; where?: (slot: number) => boolean } = {},
): Promise<FleetKey[]> {
  const { rateLimitRpm = plenty, where = () => true } = wanted
  const userId = wanted.userId ?? (await patiently(() => makeUser(office))).id
  const make = () => patiently(() => makeKey(office, { userId, rateLimitRpm }))
  const keys: FleetKey[] = []
  while (keys.length < count) {
    const missing = Math.min(madeAtOnce, count - keys.length)
    const made = await Promise.all(Array.from({ length: missing }, make))
    keys.push(...made.filter(({ id }) => where(slotOf(id))))
  }
  return keys
}

/** On a busy machine, what a test prepares may take longer than a client would wait. */
async function patiently<T>(prepare: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await prepare()
    } catch (error) {
      if (!(error instanceof Unavailable) || attempt === 5) throw error
    }
  }
}

export const verify = (url: string, token: string): Promise<Answer> => ask(`GET ${url}/v1/verify`, { token })

/** Puts the keys into every instance's cache. */
export async function warm({ urls }: Pick<Fleet, 'urls'>, ...keys: { token: string }[]): Promise<void> {
  async function warmOne(url: string, token: string): Promise<void> {
    const { status } = await verify(url, token)
    if (status === 503) return warmOne(url, token)
    if (status !== 200) throw new Error(`a usable key was answered ${status}`)
  }
  // The second request confirms the version of a key that is new to Redis.
  for (let n = 0; n < 2; n++)
    await Promise.all(urls.flatMap((url) => keys.map(({ token }) => warmOne(url, token))))
}

export async function deleteByCommandLine(t: Test, { env }: Fleet, userId: string): Promise<void> {
  const { code, stderr } = await runLatchkey(t, env, 'users', 'delete', userId)
  if (code !== 0) throw new Error(stderr)
}

export async function isDegraded({ opsUrl }: Serving): Promise<boolean> {
  const { text } = await ask(`GET ${opsUrl}/metrics`)
  const [, value] = /^latchkey_redis_degraded ([01])$/m.exec(text) ?? []
  if (value === undefined) throw new Error('the metric is missing')
  return value === '1'
}

export const untilDegraded = (instance: Serving) =>
  until('the metric says that Redis is down', () => isDegraded(instance))

/** Resolves, with the milliseconds it took, when all count in Redis. */
export async function untilShared(instances: readonly Serving[], boundMs?: number): Promise<number> {
  const startMs = performance.now()
  const areShared = async () => !(await Promise.all(instances.map(isDegraded))).includes(true)
  await until('every instance counts in Redis', areShared, boundMs)
  return performance.now() - startMs
}

const withReason = ({ msg, reason }: Record<string, unknown>) => `${msg} ${reason ?? ''}`.trim()

/** What was logged about Redis. */
export const redisLines = (log: Record<string, unknown>[]): string[] =>
  log.filter(({ msg }) => /Redis/.test(String(msg))).map(withReason)

export const outages = ({ log }: Fleet): string[] => redisLines(log()).filter((line) => /is down/.test(line))
/**
 * On a busy machine Redis may need longer than the 100 ms it is given; then the instance counts by
 * itself, as it should. Postgres may need longer too; then the answer is a 503.
 */
export const isSlow = (line: string) => /no answer in \d+ ms/.test(line)
const attemptsMax = scaled(20, 6)

/**
 * Repeats the work, with new keys, if a server did not answer an instance in the meantime: then
 * counts need not be exact.
 */
export async function undisturbed<T>(
  t: Test,
  { instances, log }: Fleet,
  work: () => Promise<T>,
  disturbs: (line: string) => boolean = isSlow,
): Promise<T> {
  const disturbances = () => log().map(withReason).filter(disturbs)
  for (let attempt = 1; attempt <= attemptsMax; attempt++) {
    await untilShared(instances)
    const before = disturbances().length
    const result = await work()
    await untilShared(instances)
    const lines = disturbances().slice(before)
    if (lines.length === 0) return result
    t.comment(`disturbed, so repeated: ${lines.join('; ')}`)
  }
  throw new Error(`disturbed in each of ${attemptsMax} attempts`)
}

/**
 * A counter without an expiry would be one more for every key and minute, for ever: counters stay 2
 * minutes, versions 10.
 */
export async function everyCounterExpires(t: Test, given: Redis | Cluster): Promise<void> {
  const redis = given as Redis
  const names: string[] = []
  for await (const some of redis.scanStream({ match: 'rl:*', count: 1000 })) names.push(...some)
  t.ok(names.length > 0, 'there are counters')
  const ttls = await Promise.all(names.map((name) => redis.ttl(name)))
  // -2: it has expired since.
  const mayStay = (ttlS: number, name: string) =>
    ttlS === -2 || (ttlS >= 0 && ttlS <= (name.endsWith(':v') ? 600 : 120))
  t.same(
    names.filter((name, i) => !mayStay(ttls[i]!, name)),
    [],
    `each of ${names.length} names in Redis expires`,
  )
}
