/**
 * Stops without failing a request. A load balancer keeps sending for a while after /readyz has
 * turned to 503, so at first every request is still answered, and each response ends its
 * connection. Then the listener closes and what is in flight is answered.
 */
import type { Server, ServerResponse } from 'node:http'
import { type Socket, Server as TcpServer } from 'node:net'

export interface Drain {
  /** From now on each response says that its connection ends with it (RFC 9112, 9.6). */
  start(): void
  /**
   * Closes the listener. Resolves when every connection has ended: answered, idle, or too slow to
   * send a whole request or to read a response. `cutOff` ends all that are left.
   */
  finish(cutOff?: AbortSignal): Promise<void>
}

const checkEveryMs = 20
/**
 * How long a new connection may stay silent: its request may be on the way. Node's own closing of
 * idle ones ignores that.
 */
const firstBytesMs = 300
/**
 * How long a request may take to finish arriving, and a client to read its response. Shorter than
 * the usual time limits, so that a stop takes under 10 s.
 */
const transferMaxMs = 4000

interface State {
  openedAtMs: number
  /** Bytes read by the end of its last response. More bytes mean that a request is arriving. */
  readAtRest: number
  /** When the client was first seen not to have read all of its response. */
  unreadSinceMs: number | null
}

/** Give up waiting for a turn without a new connection after this: in a flood there may be none. */
const acceptMaxMs = 2000

/**
 * Resolves just after the listener has accepted all waiting connections. When a listener closes,
 * the kernel resets those still waiting, and a proxy that has sent a PATCH on one must not send it
 * again (RFC 9110, 9.2.2). A turn of the event loop accepts one (libuv 1.45 and later), so a turn
 * without a new one shows that none is waiting.
 */
async function justAccepted(server: Server) {
  let accepted = 0
  const count = () => accepted++
  server.on('connection', count)
  const untilMs = performance.now() + acceptMaxMs
  // Two in a row: the first may end before the event loop has looked.
  for (let quiet = 0; quiet < 2 && performance.now() < untilMs; ) {
    const before = accepted
    await new Promise(setImmediate)
    quiet = accepted === before ? quiet + 1 : 0
  }
  server.off('connection', count)
}

/** `responseDue`: the last response still due on a connection. */
export function createDrain(
  server: Server,
  responseDue: (connection: Socket) => ServerResponse | null,
): Drain {
  const connections = new Map<Socket, State>()
  server.on('connection', (connection: Socket) => {
    connections.set(connection, { openedAtMs: performance.now(), readAtRest: 0, unreadSinceMs: null })
    connection.once('close', () => connections.delete(connection))
  })
  server.on('request', (_request, response: ServerResponse) => response.on('close', recordRest))

  /** One function for all responses: a closure for each would slow down every request. */
  function recordRest(this: ServerResponse) {
    const { socket } = this.req
    const state = connections.get(socket)
    if (state) state.readAtRest = socket.bytesRead
  }

  /** No response is due and no request is arriving. */
  function isIdle(connection: Socket, { openedAtMs, readAtRest }: State) {
    if (responseDue(connection) || connection.bytesRead > readAtRest) return false
    return readAtRest > 0 || performance.now() - openedAtMs > firstBytesMs
  }

  function endSome(finishingSinceMs: number, isTimeUp = false) {
    const nowMs = performance.now()
    const isLate = (sinceMs: number) => nowMs - sinceMs > transferMaxMs
    for (const [connection, state] of connections) {
      const isArriving = !responseDue(connection)?.req.complete
      // Pipelined requests wait for a response that is stuck, so the last one due says nothing.
      state.unreadSinceMs = connection.writableLength > 0 ? (state.unreadSinceMs ?? nowMs) : null
      const isStuck = state.unreadSinceMs !== null && isLate(state.unreadSinceMs)
      if (isTimeUp || isIdle(connection, state) || (isArriving && isLate(finishingSinceMs)) || isStuck)
        connection.destroy()
    }
  }

  return {
    start() {
      for (const connection of connections.keys()) {
        const due = responseDue(connection)
        if (due && !due.headersSent) due.setHeader('connection', 'close')
      }
      server.prependListener('request', (_request, response) => {
        response.setHeader('connection', 'close')
      })
    },
    async finish(cutOff) {
      await justAccepted(server)
      const startMs = performance.now()
      const check = () => endSome(startMs, cutOff?.aborted)
      const checking = setInterval(check, checkEveryMs)
      return new Promise((resolve) => {
        // Close the listener only: an HTTP server's own close would end connections it considers
        // idle at once.
        TcpServer.prototype.close.call(server, () => {
          clearInterval(checking)
          resolve()
        })
        check()
      })
    },
  }
}
