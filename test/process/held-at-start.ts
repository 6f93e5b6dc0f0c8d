// A service that waits for a lock while it starts, and how to see that a statement waits for a lock.
import type postgres from 'postgres'
import type { Test } from 'tap'
import { openDatabase, useServices } from '../services/index.ts'
import { type Env, externalEnv, spawnLatchkey } from './latchkey.ts'
import { until } from './until.ts'

/** Resolves when a statement like this waits for a lock. */
export const lockWaitOf = (sql: postgres.Sql, like: string) =>
  until('the statement waits', async () => {
    const waiting = await sql`
      select from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like ${like}`
    return waiting.length > 0
  })

/** One that waits for the lock of migrations, as beside another instance that is about to start. */
export async function heldAtStart(t: Test, env: Env = {}) {
  const services = await useServices(t)
  const sql = openDatabase(t, services.databaseUrl, 2)
  const held = await sql.reserve()
  await held`select pg_advisory_lock(7231906)`
  t.teardown(() => held.release())
  const service = await spawnLatchkey(t, externalEnv(services, env), 'serve')
  await lockWaitOf(sql, '%pg_advisory_xact_lock%')
  return { service, letGo: () => held`select pg_advisory_unlock(7231906)` }
}
