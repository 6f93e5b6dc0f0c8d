// Ports where something other than Postgres listens. They count connections.
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { Transform } from 'node:stream'
import type { Test } from 'tap'

export interface OddPort {
  /** A DATABASE_URL that leads here. */
  readonly url: string
  /** Connections accepted so far. */
  readonly accepted: number
  /** Connections that are open now. */
  readonly open: number
  /**
   * New connections now lead to this port, as when the server behind a load balancer is up again.
   * `change`: what the client gets of the server's bytes.
   */
  leadTo(port: number, change?: Change): void
}

type Change = (bytes: Buffer) => Buffer

/** Before 14, Postgres reports no parameters that say whether it takes writes. */
export const asPostgres13: Change = (bytes) => {
  const text = bytes.toString('latin1')
  const parameters = /in_hot_standby|default_transaction_read_only/g
  return Buffer.from(
    text.replace(parameters, (name) => 'x'.repeat(name.length)),
    'latin1',
  )
}

const http =
  'HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n'
/** Starts like a short message of Postgres. */
const mysql = Buffer.from('4a0000000a382e302e3336000b000000', 'hex')

/** An ErrorResponse. */
function refusal(code: string, message: string) {
  const fields = `SFATAL\0C${code}\0M${message}\0\0`
  const length = Buffer.alloc(4)
  length.writeInt32BE(4 + fields.length)
  return Buffer.concat([Buffer.from('E'), length, Buffer.from(fields)])
}
const sslRequestLength = 8

const refuse = (socket: Socket, message: string) =>
  socket.on('data', ({ length }) => {
    if (length === sslRequestLength) socket.write('N')
    else socket.end(refusal('08P01', message))
  })

const habits = {
  'speaks HTTP': (socket: Socket) => socket.once('data', () => socket.end(http)),
  'speaks first, as MySQL does': (socket: Socket) => socket.write(mysql),
  'accepts and closes': (socket: Socket) => socket.destroy(),
  'accepts and says nothing': (socket: Socket) => socket.resume(),
  'refuses a parameter, as PgBouncer does': (socket: Socket) =>
    refuse(socket, 'unsupported startup parameter: statement_timeout'),
  'is full, as PgBouncer says it': (socket: Socket) =>
    refuse(socket, 'no more connections allowed (max_client_conn)'),
}
export type Habit = keyof typeof habits

export async function startOddPort(t: Test, habit: Habit): Promise<OddPort> {
  const sockets = new Set<Socket>()
  let behind: number | undefined
  let changed: Change = (bytes) => bytes
  let accepted = 0
  const server = createServer((socket) => {
    accepted++
    sockets.add(socket)
    socket.on('error', () => {}).on('close', () => sockets.delete(socket))
    if (behind === undefined) habits[habit](socket)
    else {
      const change = new Transform({ transform: (bytes, _, done) => done(null, changed(bytes)) })
      const there = connect(behind, '127.0.0.1').on('error', () => socket.destroy())
      socket.pipe(there).pipe(change).pipe(socket)
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  const { port } = server.address() as AddressInfo
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    get accepted() {
      return accepted
    },
    get open() {
      return sockets.size
    },
    leadTo(port, change = changed) {
      behind = port
      changed = change
    },
  }
}
