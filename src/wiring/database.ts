/** The database: the one of DATABASE_URL or an embedded one, reachable and migrated. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Config } from '../config.ts'
import { NoConnection } from '../postgres/dial.ts'
import { describe, isFinal, isServersFault } from '../postgres/faults.ts'
import { type MigrationWait, migrate } from '../postgres/migrate.ts'
import type { Migration } from '../postgres/migrations.ts'
import { writableFirst } from '../postgres/writable-first.ts'
import { withoutAddress } from '../rules/finding.ts'
import type { OpenOptions } from './options.ts'

export interface Database {
  url: string
  ssl: Config['pgSsl']
  /** Set if the database is embedded: resolves with a reason if it stops by itself. */
  embedded: { exited: Promise<string> } | null
  applied: Migration[]
  close(): Promise<void>
}

/** To connect to the database and learn which migrations it has. */
const databaseAnswerMs = 5000
const databaseRetryMs = 500

const waitingFor: Record<MigrationWait, string> = {
  instance: 'Waiting for another instance, which is migrating the database',
  tables: 'Waiting to migrate the database: a table is in use, perhaps by a backup',
}

export async function openDatabase(config: Config, options: OpenOptions): Promise<Database> {
  if (config.databaseUrl !== null) {
    const server = { url: config.databaseUrl, ssl: config.pgSsl, name: 'the Postgres of DATABASE_URL' }
    const ready = await migrateWhenReady(server, options)
    return { ...server, ...ready, embedded: null, close: async () => {} }
  }
  // With DATABASE_URL it is not needed, and it takes time to load.
  const { openEmbeddedPostgres } = await import('../embedded/postgres.ts')
  const embedded = await openEmbeddedPostgres({
    dataDir: config.dataDir,
    role: options.role,
    mustExist: options.role === 'command' && !options.createsDatabase,
    onProgress: options.onProgress ?? (() => {}),
    signal: options.signal,
  })
  const close = () => embedded.stop()
  try {
    // It listens on loopback; PGSSLMODE is not meant for it.
    const server = { url: embedded.url, ssl: {}, name: 'the embedded Postgres' }
    const ready = await migrateWhenReady(server, options)
    return { ...server, ...ready, embedded, close }
  } catch (error) {
    await close().catch(() => {})
    throw error
  }
}

interface Server {
  url: string
  ssl: Config['pgSsl']
  /** For error messages: the URL may hold a password. */
  name: string
}

/**
 * `serve` waits for a database that is still starting. A command fails at once: its user would
 * rather know.
 */
async function migrateWhenReady(
  { url, ssl, name }: Server,
  { role, createsDatabase, onProgress, signal, databaseWaitMs = 30_000 }: OpenOptions,
): Promise<Pick<Database, 'url' | 'applied'>> {
  const untilMs = performance.now() + (role === 'serve' ? databaseWaitMs : 0)
  let timeoutMs = Math.min(databaseAnswerMs, databaseWaitMs)
  for (let announced = false; ; announced = true) {
    try {
      const onWait = (whatFor: MigrationWait) => onProgress?.(waitingFor[whatFor])
      const first = await writableFirst(url, { ssl, timeoutMs, signal })
      const mayLackPartitions = role === 'command' && !createsDatabase
      const applied = await migrate(first, { ssl, timeoutMs, signal, mayLackPartitions, onWait })
      return { url: first, applied }
    } catch (error) {
      const leftMs = untilMs - performance.now() - databaseRetryMs
      if (!isServersFault(error) || leftMs <= 0 || isFinal(error)) throw connectionError(error, name)
      const { message, code } = error as { message: string; code?: string }
      if (!announced) onProgress?.(`Waiting for Postgres: ${withoutAddress(message || String(code))}`)
      timeoutMs = Math.min(databaseAnswerMs, leftMs)
      await pause(databaseRetryMs, undefined, signal && { signal })
    }
  }
}

/** Keeps the server's message and drops its address, user and statement. */
function connectionError(error: unknown, name: string): Error {
  const { code } = error as { code?: unknown }
  if (typeof code !== 'string') return error as Error
  const isPlain = error instanceof NoConnection || /^[0-9A-Z]{5}$/.test(code)
  return new Error(`${name}: ${isPlain ? describe(error) : `cannot be reached (${code})`}`, { cause: error })
}
