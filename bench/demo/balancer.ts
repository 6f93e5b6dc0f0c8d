/**
 * One address for all instances, with nothing installed: each new connection goes to the next
 * instance. In production, use a real load balancer, which also looks at /readyz.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

interface Balancer {
  url: string
  close(): Promise<void>
}

export async function startBalancer(urls: string[]): Promise<Balancer> {
  const ports = urls.map((url) => Number(new URL(url).port))
  const sockets = new Set<Socket>()
  let next = 0
  const server = createServer((client) => {
    const instance = connect(ports[next++ % ports.length]!, '127.0.0.1')
    for (const [socket, other] of [
      [client, instance],
      [instance, client],
    ] as const) {
      sockets.add(socket)
      socket.once('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
      // 'close' follows.
      socket.on('error', () => {})
      socket.pipe(other)
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://localhost:${(server.address() as AddressInfo).port}`,
    async close() {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}
