/** Keeps the address of each client. */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Node asks the kernel for it when it is first read, and the kernel has forgotten it once the client
 * has reset the connection. A refusal, which reads it after a look-up, would then count for no
 * address and be recorded without one. From the first reading on, Node knows it.
 */
export function keepAddresses(server: Server) {
  const read = (connection: Socket) => void connection.remoteAddress
  // The second event is that of an application that speaks TLS: it has sockets of its own.
  for (const event of ['connection', 'secureConnection']) server.on(event, read)
}
