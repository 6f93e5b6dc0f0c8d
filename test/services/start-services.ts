// One Postgres and one Redis for a whole run: found, started, asked for their versions.
import { Redis } from 'ioredis'
import { dropDatabasesOf, postgresVersion } from './databases.ts'
import { dockerPostgres, dockerRedis } from './docker.ts'
import { givenPostgres, givenRedis } from './given.ts'
import { localPostgres, localRedis } from './local.ts'
import { npmPostgres, npmRedis } from './npm.ts'
import { redisDatabases } from './redis-process.ts'
import { type Found, find, firstLine } from './sources.ts'

export interface StartedServices {
  line: string
  postgresUrl: string
  redisUrl: string | null
  /** How many logical databases are there for us; null when the Redis is somebody's. */
  redisDatabases: number | null
  stop(): Promise<void>
}

export async function startServices(run: string): Promise<StartedServices> {
  const [postgres, redis] = await both(startPostgres(), startRedis())
  return {
    line: `services: ${postgres.description}, ${redis.description}`,
    postgresUrl: postgres.url,
    redisUrl: redis.url,
    redisDatabases: redis.given ? null : redisDatabases,
    async stop() {
      // A test file drops its databases itself; one that was killed could not.
      if (postgres.given) await dropDatabasesOf(run, postgres.url).catch(() => {})
      await Promise.all([postgres.stop(), redis.stop()])
    },
  }
}

/** Not Promise.all: when one fails, the other must not be left running. */
async function both<A extends Found, B extends Found>(a: Promise<A>, b: Promise<B>): Promise<[A, B]> {
  try {
    return await Promise.all([a, b])
  } catch (cause) {
    for (const result of await Promise.allSettled([a, b])) {
      if (result.status === 'fulfilled') await result.value.stop()
    }
    throw cause
  }
}

async function startPostgres() {
  const found = await find('Postgres', {
    env: givenPostgres,
    docker: dockerPostgres,
    local: localPostgres,
    npm: npmPostgres,
  })
  const url = found.url!
  return named('Postgres', { ...found, url }, () => postgresVersion(url))
}

async function startRedis() {
  const found = await find('Redis', {
    env: givenRedis,
    docker: dockerRedis,
    local: localRedis,
    npm: npmRedis,
  })
  return named('Redis', found, () => (found.url ? redisVersion(found.url) : null))
}

async function named<T extends Found>(name: string, found: T, askVersion: () => Promise<string> | null) {
  try {
    const version = await askVersion()
    const description = [name, version, found.description].filter(Boolean).join(' ')
    return { ...found, description, given: found.description.startsWith('from TEST_') }
  } catch (cause) {
    await found.stop()
    throw new Error(`${name} ${found.description} does not answer: ${firstLine(cause)}`)
  }
}

async function redisVersion(url: string): Promise<string> {
  const redis = new Redis(url, {
    lazyConnect: true,
    retryStrategy: null,
    connectTimeout: 5000,
    commandTimeout: 5000,
  })
  // ioredis rejects with "Connection is closed." and only its event has the reason.
  let reason: unknown
  redis.on('error', (error) => {
    reason = error
  })
  try {
    await redis.connect()
    return /redis_version:(\S+)/.exec(await redis.info('server'))?.[1] ?? ''
  } catch (cause) {
    throw reason ?? cause
  } finally {
    redis.disconnect()
  }
}
