// An instance, and what its Postgres holds of the last use of a key.
import type { Test } from 'tap'
import { startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'

export async function begin(t: Test) {
  const services = await useServices(t)
  const instance = await startInstance(t, services)
  const sql = openDatabase(t, services.databaseUrl, 2)
  const stored = async (id: string): Promise<number | null> =>
    (await sql`select extract(epoch from last_used_at)::float8 as at from api_keys where id = ${id}`)[0]!.at
  return { instance, sql, stored }
}
