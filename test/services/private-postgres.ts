// A Postgres of one test's own, from this machine's binaries or npm's, to be killed, frozen and restarted.
import type { Test } from 'tap'
import { findAnyPostgres } from './binaries.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from './folders.ts'
import { freePort } from './ports.ts'
import { startPostgres } from './postgres-process.ts'
import { type Restartable, restartable } from './restartable.ts'

export interface PrivatePostgres extends Restartable {
  /** Superuser, database `postgres`. */
  readonly url: string
  readonly port: number
}

export async function startPrivatePostgres(t: Test): Promise<PrivatePostgres> {
  const folder = await makeTemporaryFolder('postgres')
  let stop = async () => {}
  t.teardown(async () => {
    await stop()
    await removeTemporaryFolder(folder)
  })
  const binaries = await findAnyPostgres(folder)
  const port = await freePort()
  const server = await restartable(() => startPostgres(binaries, folder, port))
  stop = server.stop
  return Object.assign(server, { url: `postgres://postgres@127.0.0.1:${port}/postgres`, port })
}
