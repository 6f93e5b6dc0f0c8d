/** The address of each client, also after it has disconnected. */
import type { EventEmitter } from 'node:events'
import type { ServerHttp2Stream } from 'node:http2'
import type { Socket } from 'node:net'

/**
 * Reads the address when a connection opens. Node asks the kernel at the first read and remembers the
 * answer, but the kernel forgets the address once the client has reset the connection. A refusal
 * reads it after a look-up: it would be recorded without one, and not count against that client.
 *
 * `server`: of node:http, node:https or node:http2.
 */
export function rememberAddresses(server: EventEmitter): void {
  const read = (connection: Socket) => void connection.remoteAddress
  // `secureConnection` is for applications that speak TLS, where requests have another socket.
  for (const event of ['connection', 'secureConnection']) server.on(event, read)
  // HTTP/2: once the client has cancelled a stream, it no longer knows its connection.
  server.on('stream', (stream: ServerHttp2Stream) => {
    Object.assign(stream, { remoteAddress: stream.session?.socket.remoteAddress })
  })
}
