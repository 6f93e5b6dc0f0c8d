// Databases for tests: each is empty and named by its run.
import postgres from 'postgres'
import type { Test } from 'tap'
import { until } from '../process/until.ts'

const insufficientPrivilege = '42501'

const nameOf = (run: string, end: string) => `latchkey_test_${run}_${end}`

export async function createDatabase(adminUrl: string, run: string, end: string): Promise<string> {
  const name = nameOf(run, end)
  // template0 accepts no connections; one to the template would make `create database` fail.
  await asAdmin(adminUrl, (sql) => sql`create database ${sql(name)} template template0`)
  const url = new URL(adminUrl)
  url.pathname = `/${name}`
  return url.href
}

export async function dropDatabase(adminUrl: string, url: string): Promise<void> {
  await asAdmin(adminUrl, (sql) => drop(sql, new URL(url).pathname.slice(1)))
}

/** `force` ends no session of a role that a test has made: those are over soon. */
const drop = (sql: postgres.Sql, name: string) =>
  until('the last session in a database has ended', () =>
    sql`drop database if exists ${sql(name)} with (force)`.then(
      () => true,
      (error: postgres.PostgresError) => {
        if (error.code === insufficientPrivilege) return false
        throw error
      },
    ),
  )

export async function dropDatabasesOf(run: string, adminUrl: string): Promise<void> {
  await asAdmin(adminUrl, async (sql) => {
    const rows = await sql<{ datname: string }[]>`
      select datname from pg_database where starts_with(datname::text, ${nameOf(run, '')})`
    for (const { datname } of rows) await drop(sql, datname)
  })
}

export async function postgresVersion(url: string): Promise<string> {
  const [row] = await asAdmin(url, (sql) => sql<{ server_version: string }[]>`show server_version`)
  // Distributions add their own: "15.19 (Debian 15.19-0+deb12u1)".
  return row?.server_version.split(' ')[0] ?? ''
}

async function asAdmin<T>(url: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, { max: 1, connect_timeout: 5, onnotice: () => {} })
  try {
    return await work(sql)
  } finally {
    await sql.end({ timeout: 5 })
  }
}

/** Connections of a test's own, for what no endpoint shows and no endpoint does. */
export function openDatabase(t: Test, url: string, max = 1): postgres.Sql {
  const sql = postgres(url, { max, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  return sql
}
