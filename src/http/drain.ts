/**
 * Stopping without a failed request. A load balancer goes on sending for a while after readiness has turned, so at first
 * everything is taken and each answer ends its connection; then, with the listener closed, what is under way is answered.
 */
import type { Server, ServerResponse } from 'node:http'
import { type Socket, Server as TcpServer } from 'node:net'

export interface Drain {
  /** From now on each answer tells its client that the connection ends with it (RFC 9112, 9.6). */
  start(): void
  /** Closes the listener. Resolves when every connection has ended: answered, idle, or for too long without a whole request. */
  finish(): Promise<void>
}

const lookEveryMs = 20
/** For the first bytes of a connection just made: its request may be on the way, which Node's own closing of idle ones ignores. */
const firstBytesMs = 300
/** For a request that has begun to arrive. Shorter than the time limit of requests: a stop is to take under 10 s. */
const arrivalMaxMs = 4000

/** The response that is due next on a connection; Node does not tell otherwise. */
type Connection = Socket & { _httpMessage?: ServerResponse | null }

interface State {
  madeAtMs: number
  /** What had been read when it last had no request; more means that one is arriving. */
  readAtRest: number
}

/** A turn of the event loop in which so little was done that nothing can have waited long for its acceptance, milliseconds. */
const quietTurnMs = 0.3
/** Not longer than this is such a turn waited for: on a busy machine there may be none. */
const quietTurnMaxMs = 300

/**
 * Resolves where the listener has just taken what had come. The kernel resets connections that wait for that when it closes,
 * and a proxy that has sent a PATCH on one must not send it again (RFC 9110, 9.2.2).
 */
async function justAccepted() {
  const untilMs = performance.now() + quietTurnMaxMs
  // Two in a row: before the first there may have been none in which connections were taken.
  for (let quiet = 0; quiet < 2 && performance.now() < untilMs; ) {
    const startMs = performance.now()
    await new Promise(setImmediate)
    quiet = performance.now() - startMs < quietTurnMs ? quiet + 1 : 0
  }
}

export function createDrain(server: Server): Drain {
  const connections = new Map<Connection, State>()
  server.on('connection', (connection: Connection) => {
    connections.set(connection, { madeAtMs: performance.now(), readAtRest: 0 })
    connection.once('close', () => connections.delete(connection))
  })

  /** Nothing is due on it and nothing arrives. */
  function isIdle(connection: Connection, { madeAtMs, readAtRest }: State) {
    if (connection._httpMessage || connection.bytesRead > readAtRest) return false
    return readAtRest > 0 || performance.now() - madeAtMs > firstBytesMs
  }

  function endSome(late: boolean) {
    for (const [connection, state] of connections) {
      const due = connection._httpMessage
      if (isIdle(connection, state) || (late && !due?.req.complete)) connection.destroy()
    }
  }

  return {
    start() {
      for (const [connection, state] of connections) {
        const due = connection._httpMessage
        if (due && !due.headersSent) due.setHeader('connection', 'close')
        if (!due) state.readAtRest = connection.bytesRead
      }
      server.prependListener('request', (_request, response) => {
        response.setHeader('connection', 'close')
      })
    },
    async finish() {
      await justAccepted()
      const startMs = performance.now()
      const look = () => endSome(performance.now() - startMs > arrivalMaxMs)
      const looking = setInterval(look, lookEveryMs)
      return new Promise((resolve) => {
        // The listener's part of closing alone: an HTTP server would end what it takes for idle connections at once.
        TcpServer.prototype.close.call(server, () => {
          clearInterval(looking)
          resolve()
        })
        look()
      })
    },
  }
}
