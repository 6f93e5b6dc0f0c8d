/**
 * Closes connections whose clients have stopped reading. Node's time limits end with the request,
 * so an unread response would hold its connection forever. A timeout on each socket would set a
 * timer for each request; checking all connections once a minute costs a request nothing.
 */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

/** A client that reads nothing for this long is disconnected, within twice that. */
const checkEveryMs = 60_000

/**
 * What the kernel has accepted, which is no more than a buffer ahead of the client.
 * `socket.bytesWritten` also counts what waits in this process, so during one large response it
 * stays the same. Node's own socket timeouts look at `writeQueueSize` too.
 */
function bytesSent(connection: Socket) {
  const { _handle: handle } = connection as Socket & {
    _handle: { bytesWritten: number; writeQueueSize: number } | null
  }
  return handle && handle.bytesWritten - handle.writeQueueSize
}

export function closeUnread(server: Server) {
  /** Bytes sent at the last check, or null if none were waiting. */
  const connections = new Map<Socket, number | null>()
  server.on('connection', (connection: Socket) => {
    connections.set(connection, null)
    connection.once('close', () => connections.delete(connection))
  })

  server.once('listening', () => {
    let timer = setTimeout(check, checkEveryMs).unref()
    server.once('close', () => clearTimeout(timer))

    function check() {
      for (const [connection, sentBefore] of connections) {
        const sent = connection.writableLength > 0 ? bytesSent(connection) : null
        if (sent !== null && sent === sentBefore) connection.destroy()
        else connections.set(connection, sent)
      }
      timer = setTimeout(check, checkEveryMs).unref()
    }
  })
}
