/**
 * Which store is which: the one place that knows the concrete ones. With DATABASE_URL and REDIS_URL it uses those servers and
 * starts nothing; without, a Postgres of its own and counting in memory.
 */
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Cluster, Redis } from 'ioredis'
import type { Config } from '../config.ts'
import { readOrCreateHashSecret } from '../embedded/hash-secret.ts'
import { openEmbeddedPostgres } from '../embedded/postgres.ts'
import { createPublish } from '../guard/publish.ts'
import { createMemoryCounter } from '../memory/counter.ts'
import { createAuditLog } from '../postgres/audit.ts'
import { NoConnection } from '../postgres/dial.ts'
import { hasKeys, hasOnlyKeysOfOtherSecrets } from '../postgres/hash-secrets.ts'
import { createKeyStore } from '../postgres/keys.ts'
import { type Migration, migrate } from '../postgres/migrate.ts'
import { dropPartitionsOlderThan, ensurePartitions } from '../postgres/partitions.ts'
import { createPool, isServersFault, type Pool } from '../postgres/pool.ts'
import { createUserStore } from '../postgres/users.ts'
import { connectRedis, requireDatabase } from '../redis/connect.ts'
import { createRedisCounter, type RedisCounterOptions } from '../redis/counter.ts'
import { hashSecretId } from '../rules/token.ts'
import type { AuditLog, Counter, KeyStore, UserStore } from '../stores.ts'

export interface Stores {
  keys: KeyStore
  users: UserStore
  audit: AuditLog
  counter: Counter
  hashSecret: string
  /** How long a cached key is trusted while the shared counter confirms it, and while nothing does, milliseconds. */
  cacheTtlMs: number
  degradedCacheTtlMs: number
  /** Set where the database is our own: resolves with a reason if it ends by itself. */
  embedded: { exited: Promise<string> } | null
  applied: Migration[]
  /** Makes the coming partitions for refusals and drops those past AUDIT_RETENTION_DAYS, which it names. */
  maintain(): Promise<string[]>
  close(): Promise<void>
}

export interface OpenOptions {
  /** serve: the one service of an embedded database; command: anything beside it. */
  role: 'serve' | 'command'
  /** A command may create the embedded database; most only make sense on one that exists. */
  createsDatabase?: boolean
  /** It will mint keys, as `serve` always may: refused under a HASH_SECRET of which no existing key is. */
  mintsKeys?: boolean
  onProgress?: (line: string) => void
  /** Ends the waiting for a database that is not there yet. */
  signal?: AbortSignal
  onOutage?: RedisCounterOptions['onOutage']
  onBatch?: RedisCounterOptions['onBatch']
  /** A queue was full, and a request was answered 503. */
  onShed?: (queue: string) => void
  /** A connection to count on in place of REDIS_URL's. */
  redis?: Redis | Cluster
  /** How many times longer than usual to wait for Redis and Postgres. Tests of anything else must not fail on a busy machine. */
  patience?: number
}

/**
 * Connections at most, and the time from asking to the answer. Separate pools, so that a slow list cannot hold up
 * authentication, nor a flood of refusals a list.
 */
export const poolBounds = {
  lookups: { max: 2, timeoutMs: 1000 },
  management: { max: 4, timeoutMs: 1100 },
  audit: { max: 2, timeoutMs: 1200 },
  background: { max: 1, timeoutMs: 5000 },
  /** Connects only when the command line asks: a person waits, and a user may have many keys. */
  operator: { max: 1, timeoutMs: 30_000 },
} as const

/** What an instance believes while it runs alone, so the command line has to wait for it. */
const aloneCacheTtlMs = 1000
/** A database that starts together with us. */
const databaseWaitMs = 30_000
/** To connect to the database and learn which migrations it has. */
const databaseAnswerMs = 5000
const databaseRetryMs = 500
const redisWaitMs = 1000

export async function openStores(config: Config, options: OpenOptions): Promise<Stores> {
  const { role, onProgress = () => {}, onShed = () => {}, patience = 1 } = options
  const closers: (() => Promise<unknown>)[] = []
  const close = async () => {
    for (const one of closers.splice(0).reverse()) await one()
  }
  try {
    const embedded =
      config.databaseUrl === null
        ? await openEmbeddedPostgres({
            dataDir: config.dataDir,
            role,
            mustExist: role === 'command' && !options.createsDatabase,
            onProgress,
          })
        : null
    if (embedded) closers.push(() => embedded.stop())
    const url = config.databaseUrl ?? embedded!.url
    // The embedded Postgres is on loopback, and PGSSLMODE is not meant for it.
    const ssl = embedded ? {} : config.pgSsl
    const whose = embedded ? 'the embedded Postgres' : 'the Postgres of DATABASE_URL'
    const applied = await migrated(url, ssl, { ...options, whose })

    // At once: each may wait a second for a server that does not answer.
    const pools: Pool[] = []
    closers.push(() => Promise.all(pools.map((one) => one.close())))
    const pool = (purpose: keyof typeof poolBounds) => {
      const { max, timeoutMs } = poolBounds[purpose]
      const made = createPool({
        url,
        ssl,
        purpose,
        max,
        timeoutMs: timeoutMs * patience,
        onShed: () => onShed(`postgres_${purpose}`),
      })
      pools.push(made)
      return made
    }
    const lookups = pool('lookups')
    const management = pool('management')
    const auditing = pool('audit')
    const background = pool('background')
    const operator = pool('operator')

    // One that can never connect (a pooler between that refuses our settings) is a fault of the start, not of each request.
    await Promise.all(
      [lookups, management, auditing, background].map((one) => one.run((sql) => sql`select 1`)),
    )

    const hashSecret = await openHashSecret(config, url, ssl, options)

    // Nobody else uses the database of an embedded service; a given one may have other instances.
    const counter = await openCounter(config, options, embedded !== null && role === 'serve')
    closers.push(() => counter.close())
    const counted = counter.mode !== 'memory'
    // A command line without REDIS_URL cannot know that the service has none either.
    const maxStaleMs = counted || !embedded ? config.keyCacheSeconds * 1000 : aloneCacheTtlMs
    const publish = createPublish({ counter, maxStaleMs })
    return {
      keys: createKeyStore(
        { lookups, management, background, operator },
        { keysPerUserMax: config.maxKeysPerUser, publish },
      ),
      users: createUserStore(operator, publish),
      audit: createAuditLog({ audit: auditing, operator }),
      counter,
      hashSecret,
      cacheTtlMs: config.keyCacheSeconds * 1000,
      // Other instances may share a database that was given to us, and nothing would tell of their changes.
      degradedCacheTtlMs: embedded && !counted ? Math.min(aloneCacheTtlMs, config.keyCacheSeconds * 1000) : 0,
      embedded,
      applied,
      async maintain() {
        // Apart: what cannot be dropped now must not keep the coming days from being made.
        await background.run(ensurePartitions)
        return background.run((sql) => dropPartitionsOlderThan(sql, config.auditRetentionDays))
      },
      close,
    }
  } catch (error) {
    await close().catch(() => {})
    throw error
  }
}

/** A secret under which no existing key was made is almost certainly the wrong one, and new keys would hide that. */
async function openHashSecret(
  config: Config,
  url: string,
  ssl: Config['pgSsl'],
  { role, mintsKeys }: OpenOptions,
): Promise<string> {
  const { dataDir, hashSecretPrevious, acceptNewHashSecret } = config
  // Connects only when asked. A wrong secret is one scan of all keys: 0.2 s for a million.
  const pool = createPool({ url, ssl, purpose: 'hash secret', max: 1, timeoutMs: 30_000 })
  try {
    const hashSecret = config.hashSecret ?? (await readOrCreateHashSecret(dataDir, () => pool.run(hasKeys)))
    if ((role === 'serve' || mintsKeys) && !acceptNewHashSecret) {
      const ids = [hashSecret, hashSecretPrevious].flatMap((secret) =>
        secret === null ? [] : [hashSecretId(secret)],
      )
      if (await pool.run((sql) => hasOnlyKeysOfOtherSecrets(sql, ids))) {
        const secrets =
          config.hashSecret === null ? `the secret in ${join(dataDir, 'hash-secret')}` : 'HASH_SECRET'
        throw new Error(
          `none of the usable keys in the database was made under ${secrets}${hashSecretPrevious === null ? '' : ' or HASH_SECRET_PREVIOUS'}: set HASH_SECRET to the secret they were made under, or set ACCEPT_NEW_HASH_SECRET=1 to give them all up`,
        )
      }
    }
    return hashSecret
  } finally {
    await pool.close()
  }
}

async function openCounter(config: Config, options: OpenOptions, alone: boolean): Promise<Counter> {
  const { redis, onOutage, onBatch, patience = 1 } = options
  const client = redis ?? (config.redis && connectRedis(config.redis))
  if (client === null) return createMemoryCounter({ alone })
  const counter = createRedisCounter({
    client,
    patience,
    ...(onOutage && { onOutage }),
    ...(onBatch && { onBatch }),
  })
  try {
    await requireDatabase(client)
  } catch (error) {
    await counter.close()
    throw error
  }
  // Servers that do not count by then are down, and this instance starts without them.
  const untilMs = performance.now() + redisWaitMs * patience
  while (counter.mode === 'local' && performance.now() < untilMs) await sleep(10)
  return counter
}

async function migrated(
  url: string,
  ssl: Config['pgSsl'],
  { role, onProgress, signal, whose }: OpenOptions & { whose: string },
): Promise<Migration[]> {
  // A person who gave a command would rather know at once.
  const untilMs = performance.now() + (role === 'serve' ? databaseWaitMs : 0)
  let timeoutMs = databaseAnswerMs
  for (let told = false; ; ) {
    try {
      return await migrate(url, { ssl, timeoutMs, signal })
    } catch (error) {
      const leftMs = untilMs - performance.now() - databaseRetryMs
      if (!isServersFault(error) || leftMs <= 0 || isFinal(error)) throw plainly(error, whose)
      if (!told)
        onProgress?.(`Waiting for Postgres: ${(error as Error).message || (error as { code?: string }).code}`)
      told = true
      timeoutMs = Math.min(databaseAnswerMs, leftMs)
      await sleep(databaseRetryMs, undefined, signal && { signal })
    }
  }
}

/** Waiting does not help: no Postgres that can be used, or a wrong password or database name (SQLSTATE classes 28 and 3D). */
const isFinal = (error: unknown) =>
  error instanceof NoConnection ? error.isFinal : /^(28|3D)/.test(String((error as { code?: unknown }).code))

/** The server's words without its address, user or statement. */
function plainly(error: unknown, whose: string): Error {
  const { code, message } = error as { code?: unknown; message?: string }
  if (typeof code !== 'string') return error as Error
  const isPlain = error instanceof NoConnection || /^[0-9A-Z]{5}$/.test(code)
  return new Error(`${whose}: ${isPlain ? message : `cannot be reached (${code})`}`, {
    cause: error,
  })
}
