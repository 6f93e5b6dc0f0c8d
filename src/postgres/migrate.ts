/**
 * Brings the database schema up to date: applies each file of sql/postgres once, in order. The
 * missing files are sent as one statement under a lock, so instances may start together, and a lost
 * connection leaves nothing half done. A database that is up to date is only read, so a role that
 * may not change it can start the service.
 */
import type { Sql } from 'postgres'
import { postgresAt } from './connect.ts'
import { timedOut } from './dial.ts'
import { permissionFault } from './faults.ts'
import {
  countMissing,
  type Migration,
  type MigrationFile,
  missingOf,
  readMigrations,
  requireSearchPath,
  requireUtf8,
} from './migrations.ts'
import { ensurePartitions } from './partitions.ts'
import type { SslSettings } from './ssl.ts'

/** An arbitrary number that nothing else in this database locks. */
const migrationLock = 7_231_906
/** How long to wait for the other instance before checking for a signal to stop. */
const lockWaitMs = 1000
/**
 * How long to wait for a table, for example while a backup reads it. Everyone else who wants it waits
 * behind the migration, so it gives up soon, and they get their turn before this instance or another
 * tries again.
 */
const tableWaitMs = 400
const tablePauseS = 2
const byAnother = 'another instance is migrating'

/** What a migration waits for. */
export type MigrationWait = 'instance' | 'tables'

export interface MigrateOptions {
  ssl?: SslSettings
  /** Milliseconds to connect and to read what was applied. Applying has no time limit. */
  timeoutMs?: number
  /** Stops waiting, also for another instance. A migration that has begun is not interrupted. */
  signal?: AbortSignal | undefined
  /** The role may lack the right to create the coming partitions, as one that only reads does. */
  mayLackPartitions?: boolean
  /** Called once for each: another instance is migrating, or somebody holds a table. */
  onWait?: (whatFor: MigrationWait) => void
}

/**
 * Resolves to the migrations it applied. Rejects if the server is down, or a file was changed after
 * it was applied.
 */
export async function migrate(
  url: string,
  { ssl, timeoutMs = 5000, signal, mayLackPartitions, onWait }: MigrateOptions = {},
): Promise<Migration[]> {
  const files = await readMigrations()
  const sql = postgresAt(url, ssl).connect({
    connect_timeout: timeoutMs / 1000,
    // Without standard_conforming_strings, Postgres would read the '\S' of a CHECK as 'S'. A `set` in
    // the script would come too late: Postgres parses the message as a whole.
    connection: {
      application_name: 'latchkey migrate',
      standard_conforming_strings: 'on',
      // Milliseconds; the longest. postgres.js does not send 0, which would be none.
      statement_timeout: 2 ** 31 - 1,
    },
  })
  const inTime = <T>(work: PromiseLike<T>) => within(work, timeoutMs, signal)
  try {
    await inTime(requireSearchPath(sql, url))
    let missing = await inTime(missingOf(sql, files))
    if (missing.length === files.length) await inTime(requireUtf8(sql))
    const applied: Migration[] = []
    const waited = new Set<MigrationWait>()
    for (; missing.length > 0; missing = await inTime(missingOf(sql, files))) {
      const outcome = await apply(sql, missing, waited.has('tables'))
      if (outcome === 'applied') applied.push(...missing.map(({ version, name }) => ({ version, name })))
      if (outcome === 'applied' || outcome === 'outdated') continue
      if (!waited.has(outcome)) onWait?.(outcome)
      waited.add(outcome)
    }
    await inTime(ensurePartitions(sql)).catch((error) => {
      if (!mayLackPartitions || error.code !== permissionFault) throw error
    })
    await sql.end({ timeout: 1 })
    return applied
  } catch (error) {
    await sql.end({ timeout: 0 })
    throw error
  }
}

/**
 * outdated: another instance applied them first. instance, tables: what it gave up waiting for. Pauses
 * after a try that gave up, with the lock, so that instances do not try one after the other.
 */
async function apply(
  sql: Sql,
  missing: MigrationFile[],
  hasTried: boolean,
): Promise<'applied' | 'outdated' | MigrationWait> {
  const before = missing[0]!.version - 1
  try {
    // One message to the server, and so one transaction.
    await sql.unsafe(`
      set local lock_timeout = ${lockWaitMs};
      do $$
      declare
        has_tried boolean := ${hasTried};
      begin
        if not pg_try_advisory_xact_lock(${migrationLock}) then
          has_tried := true;
          perform pg_advisory_xact_lock(${migrationLock});
        end if;
        create table if not exists schema_version (version bigint primary key, name text, md5 text, run_at timestamptz);
        if (select coalesce(max(version), 0) from schema_version) <> ${before} then
          raise 'another instance has migrated meanwhile' using errcode = 'serialization_failure';
        end if;
        if has_tried then perform pg_sleep(${tablePauseS}); end if;
      exception when lock_not_available then
        raise '${byAnother}' using errcode = 'lock_not_available';
      end $$;
      set local lock_timeout = ${tableWaitMs};
      ${missing.map(scriptOf).join('\n')}`)
    return 'applied'
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    if (code === '40001') return 'outdated'
    if (code === '55P03') return message === byAnother ? 'instance' : 'tables'
    if (code !== permissionFault) throw error
    throw new Error(
      `${countMissing(missing.length)}, and the role of DATABASE_URL may not apply them (${message}): run "latchkey migrate" as the owner`,
      { cause: error },
    )
  }
}

const scriptOf = ({ version, name, md5, script }: MigrationFile) => `${script};
insert into schema_version (version, name, md5, run_at) values (${version}, '${name}', '${md5}', now());`

/** Rejects when the time is up or the signal is aborted. */
async function within<T>(work: PromiseLike<T>, timeoutMs: number, signal?: AbortSignal): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  let stop = () => {}
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(timedOut(timeoutMs)), timeoutMs)
    stop = () => reject(signal?.reason)
    if (signal?.aborted) stop()
    signal?.addEventListener('abort', stop)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', stop)
  }
}
