// One redis-server on loopback that stores nothing on disk.
import { connect } from 'node:net'
import { connect as tlsConnect } from 'node:tls'
import type { Test } from 'tap'
import { findRedisServer } from './binaries.ts'
import type { Certificates } from './certificates.ts'
import { freePort } from './ports.ts'
import { launch, type PrivateServer, type ServerProcess, startPrivateServer } from './private-server.ts'

/**
 * Logical databases of the shared server: one for each test file of a run, so that none sees
 * another's keys.
 */
export const redisDatabases = 4096
export const redisSettings = ['--save', '', '--appendonly', 'no', '--databases', String(redisDatabases)]

export interface RedisArguments {
  /** Further arguments. */
  args?: string[]
  /** It then speaks nothing but TLS. */
  tls?: Certificates
}

export interface PrivateRedis extends PrivateServer {
  readonly url: string
  readonly port: number
}

/**
 * A redis-server of the test's own. Null, with a skipped assertion, where there is none: the test
 * may then return.
 */
export async function startPrivateRedis(t: Test, options: RedisArguments = {}): Promise<PrivateRedis | null> {
  const program = await findRedisServer()
  if (!program) {
    t.pass('a private Redis', { skip: 'there is no redis-server on this machine' })
    return null
  }
  const port = await freePort()
  const server = await startPrivateServer(t, 'redis', (folder) => startRedis(program, folder, port, options))
  return Object.assign(server, { url: `redis${options.tls ? 's' : ''}://127.0.0.1:${port}`, port })
}

const tlsArguments = ({ authority, certificate, key }: Certificates) => [
  ...['--tls-cert-file', certificate, '--tls-key-file', key, '--tls-ca-cert-file', authority],
  ...['--tls-auth-clients', 'no', '--tls-replication', 'yes', '--tls-cluster', 'yes'],
]

export function startRedis(
  command: string,
  folder: string,
  port: number,
  { args = [], tls }: RedisArguments = {},
): Promise<ServerProcess> {
  const ports = tls
    ? ['--port', '0', '--tls-port', String(port), ...tlsArguments(tls)]
    : ['--port', String(port)]
  return launch({
    command,
    args: [...ports, '--bind', '127.0.0.1', '--dir', folder, ...redisSettings, ...args],
    folder,
    mark: `:${port}`,
    ready: (pid) => answers(port, pid, tls !== undefined),
  })
}

/**
 * Asks in the bare protocol, because a client library would retry by itself. This process must
 * answer, not another one that took the port in the meantime; one that wants a password does not
 * say.
 */
function answers(port: number, pid: number, tls: boolean): Promise<boolean> {
  return new Promise((resolve) => {
    const to = { port, host: '127.0.0.1' }
    const socket = tls ? tlsConnect({ ...to, rejectUnauthorized: false }) : connect(to)
    socket.setTimeout(1000, () => socket.destroy())
    socket.once(tls ? 'secureConnect' : 'connect', () => socket.write('INFO server\r\n'))
    socket.once('data', (answer) => {
      resolve(answer.includes(`process_id:${pid}\r`) || String(answer).startsWith('-NOAUTH'))
      socket.destroy()
    })
    socket.on('error', () => socket.destroy())
    socket.once('close', () => resolve(false))
  })
}
