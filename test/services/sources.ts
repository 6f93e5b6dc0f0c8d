// One Postgres and one Redis for a whole run, from the first of four sources that has one.
import { readFile } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { findBinaries } from '../../src/embedded/binaries.ts'
import { openDataDir } from '../../src/embedded/data-dir.ts'
import { findLocalPostgres, findRedisServer, forcedSource, type Source, sources } from './binaries.ts'
import { dropDatabasesOf, postgresVersion } from './databases.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from './folders.ts'
import { freePort } from './ports.ts'
import { asArguments, postgresSettings, startPostgres } from './postgres.ts'
import type { ServerProcess } from './private-server.ts'
import { redisDatabases, redisSettings, startRedis } from './redis.ts'

/** A running server, found or started. */
interface Found {
  /** Where from, for the line that is printed: `this machine's binaries`. */
  from: string
  /** Null: Redis is emulated in each test's process. */
  url: string | null
  /** Somebody else runs it. */
  given?: true
  /** Ends what was started for it; does nothing to a server that was given. */
  stop(): Promise<unknown>
}

/** Each answers null where its source does not exist here, and throws where it exists and fails. */
type Finders = Record<Source, () => Promise<Found | null>>

const thisMachine = "this machine's binaries"
const postgresUrl = (port: number) => `postgres://postgres@127.0.0.1:${port}/postgres`

const postgresFrom: Finders = {
  env: () => given('TEST_DATABASE_URL'),
  async docker() {
    if (!(await hasDocker())) return null
    const image = 'postgres:18-alpine'
    const { PostgreSqlContainer } = await import('@testcontainers/postgresql')
    const container = await new PostgreSqlContainer(image)
      .withDatabase('postgres')
      .withUsername('postgres')
      .withCommand(['postgres', ...asArguments(postgresSettings)])
      .start()
      .catch(failureOf(image))
    return { from: `Docker (${image})`, url: container.getConnectionUri(), stop: () => container.stop() }
  },
  async local() {
    const binaries = await findLocalPostgres()
    const start = async (folder: string, port: number) => ({
      url: postgresUrl(port),
      server: await startPostgres(binaries!, folder, port),
    })
    return binaries && startHere(thisMachine, start)
  },
  npm: () =>
    startHere("npm (Latchkey's embedded Postgres)", async (folder, port) => {
      // Latchkey's own module creates it: a Postgres that it cannot start is no source for tests
      // either.
      const { openEmbeddedPostgres } = await import('../../src/embedded/postgres.ts')
      const made = await openEmbeddedPostgres({ dataDir: folder, role: 'serve', onProgress: () => {} })
      await made.stop()
      const url = Object.assign(new URL(made.url), { port: String(port), pathname: '/postgres' })
      // Its own start allows 60 connections and waits for the disk: right for the product, wrong
      // for tests.
      const server = await startPostgres(findBinaries(openDataDir(folder).libraries), folder, port)
      return { url: url.href, server }
    }),
}

const redisFrom: Finders = {
  env: () => given('TEST_REDIS_URL'),
  async docker() {
    if (!(await hasDocker())) return null
    const image = 'redis:7-alpine'
    const { RedisContainer } = await import('@testcontainers/redis')
    const container = await new RedisContainer(image)
      .withCommand(['redis-server', ...redisSettings])
      .start()
      .catch(failureOf(image))
    return { from: `Docker (${image})`, url: container.getConnectionUrl(), stop: () => container.stop() }
  },
  async local() {
    const program = await findRedisServer()
    const start = async (folder: string, port: number) => ({
      url: `redis://127.0.0.1:${port}`,
      server: await startRedis(program!, folder, port),
    })
    return program === null ? null : startHere(thisMachine, start)
  },
  // Its listener would bind every interface without a password, so it runs inside each test's
  // process. Tests that need a Redis process (to kill it, or for a cluster) are skipped.
  async npm() {
    // Its package.json is not among its exports.
    const manifest = new URL('../package.json', import.meta.resolve('js-redis-server'))
    const { version } = JSON.parse(await readFile(manifest, 'utf8'))
    const from = `js-redis-server ${version} in each test's process (the last resort: no real Redis)`
    return { from, url: null, stop: async () => {} }
  },
}

async function given(name: string): Promise<Found | null> {
  const url = process.env[name]
  if (!url) return null
  // Never the URL itself: it may hold a password.
  if (!URL.canParse(url)) throw new Error(`${name} is not a URL`)
  return { from: name, url, given: true, stop: async () => {} }
}

/** In a temporary folder, on a free port. */
async function startHere(
  from: string,
  start: (folder: string, port: number) => Promise<{ url: string; server: ServerProcess }>,
): Promise<Found> {
  const folder = await makeTemporaryFolder('shared')
  const port = await freePort()
  try {
    const { url, server } = await start(folder, port)
    return { from, url, stop: () => server.stop().then(() => removeTemporaryFolder(folder)) }
  } catch (cause) {
    await removeTemporaryFolder(folder)
    throw cause
  }
}

let docker: Promise<boolean> | undefined

/** Asked once for both servers. */
function hasDocker(): Promise<boolean> {
  docker ??= import('testcontainers').then(({ getContainerRuntimeClient }) => {
    const found = getContainerRuntimeClient().then(
      () => true,
      () => false,
    )
    // An engine answers in milliseconds. A DOCKER_HOST that leads nowhere would hang for minutes.
    return Promise.race([found, pause(3000, false, { ref: false })])
  })
  return docker
}

/** The engine does not say which image it could not pull. */
const failureOf = (image: string) => (cause: unknown) => {
  throw new Error(`${image}: ${firstLine(cause)}`, { cause })
}

/**
 * A server given by URL is used or the run fails, because silently testing against another one
 * would mislead. The other sources fall through to the next one, and the printed line says why.
 */
async function find(what: 'Postgres' | 'Redis', finders: Finders): Promise<Found & { line: string }> {
  const forced = forcedSource()
  const failures: string[] = []
  for (const source of forced ? [forced] : sources) {
    try {
      const found = await finders[source]()
      if (found) return { ...found, line: [await describe(what, found), ...failures].join('; ') }
    } catch (cause) {
      if (forced || source === 'env') throw cause
      failures.push(`${source} failed: ${firstLine(cause)}`)
    }
  }
  throw new Error(forced ? `TEST_SERVICES=${forced} has no ${what}` : `no ${what}: ${failures.join('; ')}`)
}

async function describe(what: 'Postgres' | 'Redis', { url, from, stop }: Found): Promise<string> {
  try {
    const version = url && (what === 'Postgres' ? await postgresVersion(url) : await redisVersion(url))
    return [what, version, 'from', from].filter(Boolean).join(' ')
  } catch (cause) {
    await stop()
    throw new Error(`${what} from ${from} does not answer: ${firstLine(cause)}`)
  }
}

async function redisVersion(url: string): Promise<string> {
  const options = { lazyConnect: true, retryStrategy: null, connectTimeout: 5000, commandTimeout: 5000 }
  const redis = new Redis(url, options)
  // ioredis rejects with "Connection is closed."; only its event has the reason.
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

export interface StartedServices {
  line: string
  postgresUrl: string
  redisUrl: string | null
  /** How many logical databases are there for us; null if somebody else runs the Redis. */
  redisDatabases: number | null
  stop(): Promise<void>
}

export async function startServices(run: string): Promise<StartedServices> {
  const finding = [find('Postgres', postgresFrom), find('Redis', redisFrom)] as const
  try {
    const [postgres, redis] = await Promise.all(finding)
    return {
      line: `services: ${postgres.line}, ${redis.line}`,
      postgresUrl: postgres.url!,
      redisUrl: redis.url,
      redisDatabases: redis.given ? null : redisDatabases,
      async stop() {
        // A test file drops its databases itself, unless it was killed.
        if (postgres.given) await dropDatabasesOf(run, postgres.url!).catch(() => {})
        await Promise.all([postgres.stop(), redis.stop()])
      },
    }
  } catch (cause) {
    // If one fails, do not leave the other running.
    for (const one of await Promise.allSettled(finding))
      if (one.status === 'fulfilled') await one.value.stop()
    throw cause
  }
}

export const firstLine = (error: unknown) => String((error as Error)?.message ?? error).split('\n')[0] ?? ''
