/** A database that has few connections for those who are not superusers, and clients that take them all. */
import postgres, { type Sql } from 'postgres'
import type { Test } from 'tap'
import { until } from '../process/until.ts'
import { connectTo } from './postgres-world.ts'

/** A few more than the service's own. To be refused for them looks like max_connections to a client, and costs no 300 processes. */
const connectionsMax = 16

/** The URL of a database with a role that owns it, as is usual in production. */
export async function smallDatabase(t: Test, url: string): Promise<string> {
  const sql = connectTo(t, url)
  await sql`create role latchkey login`
  await sql`create database latchkey owner latchkey connection limit ${sql.unsafe(String(connectionsMax))}`
  await sql.end()
  return Object.assign(new URL(url), { username: 'latchkey', pathname: '/latchkey' }).href
}

/** Ends others' connections (`end`) and takes their places until it has them all. Answers how to leave. */
export async function takeConnections(
  t: Test,
  url: string,
  end: () => Promise<number>,
): Promise<() => Promise<void>> {
  let crowd: Sql[] = []
  const leave = async () => {
    const leaving = crowd
    crowd = []
    await Promise.all(leaving.map((one) => one.end({ timeout: 0 })))
  }
  t.teardown(leave)
  await until('all connections are taken', async () => {
    while (await takeOne(url, crowd));
    return (await end()) === 0
  })
  return leave
}

/** False once there is none left. */
async function takeOne(url: string, crowd: Sql[]): Promise<boolean> {
  const sql = postgres(url, { max: 1, fetch_types: false, onnotice: () => {} })
  try {
    await sql`select 1`
    crowd.push(sql)
    return true
  } catch (error) {
    await sql.end({ timeout: 0 })
    if ((error as { code?: string }).code === '53300') return false
    throw error
  }
}
