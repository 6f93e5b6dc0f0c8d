/**
 * The Postgres behind the candidates: an embedded one in this run's folder, or the one in
 * BENCH_DATABASE_URL.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import postgres from 'postgres'
import { openEmbeddedPostgres } from '../../src/embedded/postgres.ts'
import { processTreeCpuUs } from './process-tree-cpu.ts'

export interface PostgresServer {
  version: string
  /** A new, empty database, dropped at the end. */
  createDatabase(purpose: string): Promise<string>
  /** CPU time of the server's processes in microseconds; null where it cannot be read. */
  cpuUs(): number | null
  stop(): Promise<void>
}

export async function startPostgres(folder: string, givenUrl: string | undefined): Promise<PostgresServer> {
  const dataDir = join(folder, 'postgres')
  const embedded = givenUrl === undefined ? await openEmbeddedPostgres({ dataDir, role: 'command' }) : null
  const url = givenUrl ?? embedded!.url
  const admin = postgres(url, {
    max: 1,
    onnotice: () => {},
    connection: { application_name: 'latchkey bench' },
  })
  const made: string[] = []
  const postmaster =
    embedded && Number(readFileSync(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8').split('\n')[0])
  const stop = async () => {
    try {
      for (const name of made.splice(0)) await admin`drop database if exists ${admin(name)} with (force)`
      await admin.end({ timeout: 1 })
    } finally {
      await embedded?.stop()
    }
  }
  try {
    const [row] = await admin<{ server_version: string }[]>`show server_version`
    return {
      version: row!.server_version.split(' ')[0]!,
      async createDatabase(purpose) {
        const name = `latchkey_bench_${purpose}_${process.pid}`
        await admin`create database ${admin(name)}`
        made.push(name)
        return Object.assign(new URL(url), { pathname: `/${name}` }).href
      },
      cpuUs: () => (postmaster === null ? null : processTreeCpuUs(postmaster)),
      stop,
    }
  } catch (error) {
    await stop().catch(() => {})
    throw new Error(`Postgres: ${(error as Error).message}`)
  }
}
