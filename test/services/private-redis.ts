// A redis-server of one test's own, to be killed, frozen and restarted.
import type { Test } from 'tap'
import { findRedisServer } from './binaries.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from './folders.ts'
import { freePort } from './ports.ts'
import { startRedis } from './redis-process.ts'
import { type Restartable, restartable } from './restartable.ts'

export interface PrivateRedis extends Restartable {
  readonly url: string
  readonly port: number
}

/** Null where there is no redis-server; the test then has a skipped assertion that says so, and may return. */
export async function startPrivateRedis(
  t: Test,
  options: { port?: number; args?: string[] } = {},
): Promise<PrivateRedis | null> {
  const program = await findRedisServer()
  if (!program) {
    t.pass('a redis-server of its own', { skip: 'there is no redis-server on this machine' })
    return null
  }
  const folder = await makeTemporaryFolder('redis')
  const port = options.port ?? (await freePort())
  // Registered before the start: a start that fails leaves a folder too.
  let stop = async () => {}
  t.teardown(async () => {
    await stop()
    await removeTemporaryFolder(folder)
  })
  const server = await restartable(() => startRedis(program, folder, port, options.args))
  stop = server.stop
  return Object.assign(server, { url: `redis://127.0.0.1:${port}`, port })
}
