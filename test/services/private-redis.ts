// A redis-server of one test's own, to be killed, frozen and restarted.
import type { Test } from 'tap'
import { findRedisServer } from './binaries.ts'
import { freePort } from './ports.ts'
import { type PrivateServer, startPrivateServer } from './private-server.ts'
import { type RedisArguments, startRedis } from './redis-process.ts'

export interface PrivateRedis extends PrivateServer {
  readonly url: string
  readonly port: number
}

/** Null where there is no redis-server; the test then has a skipped assertion that says so, and may return. */
export async function startPrivateRedis(
  t: Test,
  options: RedisArguments & { port?: number } = {},
): Promise<PrivateRedis | null> {
  const program = await findRedisServer()
  if (!program) {
    t.pass('a redis-server of its own', { skip: 'there is no redis-server on this machine' })
    return null
  }
  const port = options.port ?? (await freePort())
  const server = await startPrivateServer(t, 'redis', (folder) => startRedis(program, folder, port, options))
  return Object.assign(server, { url: `redis${options.tls ? 's' : ''}://127.0.0.1:${port}`, port })
}
