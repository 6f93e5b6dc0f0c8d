/** Ending the connections of a listener that is closing, without cutting an answer off. */
import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

export interface Drain {
  /** Tells clients that wait for an answer that their connection ends with it, and ends idle ones, until stopped. */
  start(): void
  stop(): void
}

/** A busy keep-alive connection is idle only for moments: looked for this often. */
const everyMs = 20

/** The response that is due next on a connection; Node does not tell otherwise. */
type Connection = Socket & { _httpMessage?: ServerResponse | null }

export function createDrain(server: Server): Drain {
  const connections = new Set<Connection>()
  let timer: NodeJS.Timeout | undefined
  server.on('connection', (connection: Connection) => {
    connections.add(connection)
    connection.once('close', () => connections.delete(connection))
  })
  return {
    start() {
      // Fastify tells only those whose request arrives after the close has begun.
      for (const { _httpMessage: due } of connections) {
        if (due && !due.headersSent) due.setHeader('connection', 'close')
      }
      timer = setInterval(() => server.closeIdleConnections(), everyMs)
    },
    stop: () => clearInterval(timer),
  }
}
