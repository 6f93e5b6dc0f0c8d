// A Postgres of one test's own, from this machine's binaries or npm's, to be killed, frozen and restarted.
import type { Test } from 'tap'
import { findAnyPostgres } from './binaries.ts'
import { freePort } from './ports.ts'
import { startPostgres } from './postgres-process.ts'
import { type PrivateServer, startPrivateServer } from './private-server.ts'

export interface PrivatePostgres extends PrivateServer {
  /** Superuser, database `postgres`. */
  readonly url: string
  readonly port: number
}

export async function startPrivatePostgres(t: Test): Promise<PrivatePostgres> {
  const port = await freePort()
  const server = await startPrivateServer(t, 'postgres', async (folder) =>
    startPostgres(await findAnyPostgres(folder), folder, port),
  )
  return Object.assign(server, { url: `postgres://postgres@127.0.0.1:${port}/postgres`, port })
}
