// One redis-server, on loopback, keeping nothing on disk.
import { connect } from 'node:net'
import { connect as tlsConnect } from 'node:tls'
import type { Certificates } from './certificates.ts'
import { launch, type ServerProcess } from './server-process.ts'

/** Logical databases of the shared server: one for each test file of a run, so that none sees another's keys. */
export const redisDatabases = 1024

export interface RedisArguments {
  /** Further arguments. */
  args?: string[]
  /** It then speaks nothing but TLS. */
  tls?: Certificates
}

const tlsArguments = ({ authority, certificate, key }: Certificates) => [
  ...['--tls-cert-file', certificate, '--tls-key-file', key, '--tls-ca-cert-file', authority],
  ...['--tls-auth-clients', 'no', '--tls-replication', 'yes', '--tls-cluster', 'yes'],
]

export function startRedis(
  program: string,
  folder: string,
  port: number,
  { args = [], tls }: RedisArguments = {},
): Promise<ServerProcess> {
  return launch({
    command: program,
    args: [
      ...(tls ? ['--port', '0', '--tls-port', String(port), ...tlsArguments(tls)] : ['--port', String(port)]),
      ...['--bind', '127.0.0.1', '--dir', folder],
      ...['--save', '', '--appendonly', 'no', '--databases', String(redisDatabases)],
      ...args,
    ],
    folder,
    mark: `:${port}`,
    ready: (pid) => answers(port, pid, tls !== undefined),
  })
}

/**
 * Asks in the bare protocol: a client library would bring its own retries. It must be this process that answers, not
 * somebody's who took the port meanwhile; one that wants a password does not tell.
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
