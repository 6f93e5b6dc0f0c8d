/**
 * Stopping without a failed request. A load balancer goes on sending for a while after readiness has turned, so at first
 * everything is taken and each answer ends its connection; then, with the listener closed, what is under way is answered.
 */
import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

export interface Drain {
  /** From now on each answer tells its client that the connection ends with it (RFC 9112, 9.6). */
  start(): void
  /** The listener closes: ends idle connections, and after a while those whose request is still not whole. Until `stop`. */
  finish(): void
  stop(): void
}

/** A busy keep-alive connection is idle only for moments: looked for this often. */
const everyMs = 20
/** For a request that has begun to arrive. Shorter than the time limit of requests: a stop is to take under 10 s. */
const arrivalMaxMs = 4000

/** The response that is due next on a connection; Node does not tell otherwise. */
type Connection = Socket & { _httpMessage?: ServerResponse | null }

export function createDrain(server: Server): Drain {
  const connections = new Set<Connection>()
  let timer: NodeJS.Timeout | undefined
  server.on('connection', (connection: Connection) => {
    connections.add(connection)
    connection.once('close', () => connections.delete(connection))
  })

  function finishFrom(startMs: number) {
    server.closeIdleConnections()
    if (performance.now() - startMs < arrivalMaxMs) return
    for (const connection of connections) {
      if (!connection._httpMessage?.req.complete) connection.destroy()
    }
  }

  return {
    start() {
      for (const { _httpMessage: due } of connections) {
        if (due && !due.headersSent) due.setHeader('connection', 'close')
      }
      server.prependListener('request', (_request, response) => {
        response.setHeader('connection', 'close')
      })
    },
    finish() {
      const startMs = performance.now()
      timer = setInterval(() => finishFrom(startMs), everyMs)
    },
    stop: () => clearInterval(timer),
  }
}
