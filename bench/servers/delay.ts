/** A process of its own: passes TCP connections on, and holds each reply back for some time. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

const [host, port, delayMs] = process.argv.slice(2)

const server = createServer({ noDelay: true }, (client) => {
  const target = connect({ host, port: Number(port), noDelay: true })
  client.pipe(target)
  target.on('data', (reply) => setTimeout(() => client.write(reply), Number(delayMs)))
  const end = (...sockets: Socket[]) => {
    for (const socket of sockets) socket.destroy()
  }
  for (const socket of [client, target]) socket.on('error', () => {}).on('close', () => end(client, target))
})
server.listen(0, '127.0.0.1', () => process.send!((server.address() as AddressInfo).port))
process.on('disconnect', () => process.exit())
