/**
 * Closes connections whose clients have stopped reading. Node's time limits end with the request,
 * so an unread response would hold its connection forever. A timeout on each socket would set a
 * timer for each request; checking all connections once a minute costs a request nothing.
 */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

/** A client has this long to read a response; one that does not is closed within twice that. */
const checkEveryMs = 60_000

export function closeUnread(server: Server) {
  /** Bytes written at the last check, or null if the client had read them all. */
  const connections = new Map<Socket, number | null>()
  server.on('connection', (connection: Socket) => {
    connections.set(connection, null)
    connection.once('close', () => connections.delete(connection))
  })

  server.once('listening', () => {
    let timer = setTimeout(check, checkEveryMs).unref()
    server.once('close', () => clearTimeout(timer))

    function check() {
      for (const [connection, writtenBefore] of connections) {
        const written = connection.writableLength > 0 ? connection.bytesWritten : null
        if (written !== null && written === writtenBefore) connection.destroy()
        else connections.set(connection, written)
      }
      timer = setTimeout(check, checkEveryMs).unref()
    }
  })
}
