// One redis-server, on loopback, keeping nothing on disk.
import { connect } from 'node:net'
import { launch, type ServerProcess } from './server-process.ts'

/** Logical databases of the shared server: one for each test file of a run, so that none sees another's keys. */
export const redisDatabases = 1024

export function startRedis(
  program: string,
  folder: string,
  port: number,
  args: string[] = [],
): Promise<ServerProcess> {
  return launch({
    command: program,
    args: [
      ...['--port', String(port), '--bind', '127.0.0.1', '--dir', folder],
      ...['--save', '', '--appendonly', 'no', '--databases', String(redisDatabases)],
      ...args,
    ],
    folder,
    mark: `:${port}`,
    ready: (pid) => answers(port, pid),
  })
}

/**
 * Asks in the bare protocol: a client library would bring its own retries. It must be this process that answers, not
 * somebody's who took the port meanwhile; one that wants a password does not tell.
 */
function answers(port: number, pid: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.setTimeout(1000, () => socket.destroy())
    socket.once('connect', () => socket.write('INFO server\r\n'))
    socket.once('data', (answer) => {
      resolve(answer.includes(`process_id:${pid}\r`) || String(answer).startsWith('-NOAUTH'))
      socket.destroy()
    })
    socket.on('error', () => socket.destroy())
    socket.once('close', () => resolve(false))
  })
}
