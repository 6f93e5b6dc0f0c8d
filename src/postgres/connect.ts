/**
 * Runs postgres.js on connections that we open. By itself, postgres.js 3.4 reconnects at once and
 * forever to a port that accepts and closes, or that speaks another protocol: 500 times a second,
 * with one CPU busy.
 */
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { setTimeout as pause } from 'node:timers/promises'
import postgres, { type Sql } from 'postgres'
import { readAddress } from './address.ts'
import { closed, dial, notPostgres, timedOut } from './dial.ts'
import type { SslSettings } from './ssl.ts'

/** How long to wait before retrying a server that did not answer, or the whole list of hosts. */
const pauseMs = 200
/**
 * What a Postgres server's first byte can mean: authentication, error, notice, or another protocol
 * version.
 */
const firstBytes = [...'RENv'].map((letter) => letter.charCodeAt(0))

/** How Postgres ends each answer, without the last byte: that one is the state of the transaction. */
const readyForQuery = Buffer.from('Z\0\0\0\x05')

export type ConnectOptions = postgres.Options<Record<string, never>> & { connect_timeout: number }

export interface Server {
  connect(options: ConnectOptions): Sql
  /**
   * Tries one host on a connection of its own, the next one at each call. If that host takes
   * writes, new connections go there. Rejects if it does not answer, or the signal is aborted.
   */
  findWritable(options: ConnectOptions, signal?: AbortSignal): Promise<boolean>
  /** A connection that we have closed counts until the server closes it too. */
  openConnections(): number
  /**
   * Lets statements in flight finish, for at most a second. Then no connection is left, even if the
   * server hangs and does not close its end.
   */
  close(): Promise<void>
}

/** Throws if the TLS settings are invalid. */
export function postgresAt(databaseUrl: string, env: SslSettings = {}): Server {
  const address = readAddress(databaseUrl, env)
  const { hosts } = address
  let current = 0
  let tried = 0
  let notBeforeMs = 0
  const clients = new Set<Sql>()
  const sockets = new Set<Socket>()

  const moveOnFrom = (index: number, hadAnswered: boolean) => {
    if (current === index) current = (index + 1) % hosts.length
    const wasLast = index === hosts.length - 1
    if (wasLast && (hosts.length > 1 || !hadAnswered)) notBeforeMs = performance.now() + pauseMs
  }

  async function open(only: number | undefined, timeoutMs: number, signal: AbortSignal): Promise<Duplex> {
    const index = only ?? current
    const onFailure = (hadAnswered: boolean) => {
      if (only === undefined) moveOnFrom(index, hadAnswered)
    }
    try {
      if (index === 0) await pause(Math.max(0, notBeforeMs - performance.now()), undefined, { signal })
      const socket = await dial(hosts[index]!, address, timeoutMs, signal)
      sockets.add(socket)
      socket.once('close', () => sockets.delete(socket))
      watch(socket, onFailure)
      return socket
    } catch (error) {
      onFailure(false)
      return failing(error as Error)
    }
  }

  /** `only`: the index of the one host to use. */
  function connect(options: ConnectOptions, only?: number): Sql {
    const ended = new AbortController()
    const usable = only === undefined ? hosts : [hosts[only]!]
    const ours: object = {
      max: 1,
      fetch_types: false,
      onnotice: () => {},
      host: usable.map(({ host }) => host),
      port: usable.map(({ port }) => port),
      database: address.database,
      ssl: false,
      sslnegotiation: null,
      socket: () => open(only, options.connect_timeout * 1000, ended.signal),
    }
    const sql = withoutSessionAttrs(() => postgres(address.url, { ...options, ...ours }) as Sql)
    const { end } = sql
    // postgres.js would use a connection that opens after end(), and never close it.
    sql.end = (how) =>
      end(how).finally(() => {
        ended.abort()
        clients.delete(sql)
      })
    clients.add(sql)
    return sql
  }

  return {
    connect: (options) => connect(options),
    async findWritable(options, signal) {
      tried = (tried + 1) % hosts.length
      const index = tried
      const sql = connect(options, index)
      const waitMs = options.connect_timeout * 1000
      const late = pause(waitMs, undefined, { ref: false, ...(signal && { signal }) }).then(() => {
        throw timedOut(waitMs)
      })
      try {
        const [row] = await Promise.race([
          sql`select current_setting('transaction_read_only') = 'off' as is_writable`,
          late,
        ])
        if (!row!.is_writable) return false
        current = index
        return true
      } finally {
        sql.end({ timeout: 0 }).catch(() => {})
      }
    },
    openConnections: () => sockets.size,
    async close() {
      await Promise.all([...clients].map((sql) => sql.end({ timeout: 1 })))
      for (const socket of sockets) socket.destroy()
    },
  }
}

/**
 * postgres.js 3.4 also takes target_session_attrs from the environment, and no option prevents that.
 * address.ts says why it must not. The variable is restored: in another app's process, it may be
 * meant for another client.
 */
function withoutSessionAttrs<T>(make: () => T): T {
  const { PGTARGETSESSIONATTRS } = process.env
  if (PGTARGETSESSIONATTRS === undefined) return make()
  delete process.env.PGTARGETSESSIONATTRS
  try {
    return make()
  } finally {
    process.env.PGTARGETSESSIONATTRS = PGTARGETSESSIONATTRS
  }
}

/**
 * Reports an error to postgres.js where it would see none: when a connection just closes, after
 * which it would reconnect at once, and when the server is not Postgres.
 *
 * `onFailure` is called when a connection closes that never answered a statement. One that did may
 * have reached its time limit, so its host gets another attempt. If the host has failed, that
 * attempt fails too.
 */
function watch(socket: Socket, onFailure: (hadAnswered: boolean) => void) {
  let hadAnswered = false
  let answers = 0
  socket.once('data', (bytes: Buffer) => {
    hadAnswered = firstBytes.includes(bytes[0]!)
    if (hadAnswered) return
    socket.emit('error', notPostgres())
    socket.destroy()
    // postgres.js gets the same bytes, and prints messages it does not know. As 0xff they are one
    // message that never ends, so it prints nothing.
    bytes.fill(0xff)
  })
  socket.on('data', function count(bytes: Buffer) {
    if (bytes.subarray(-6, -1).equals(readyForQuery)) answers++
    if (answers === 2) socket.off('data', count)
  })
  // postgres.js 3.4 never ends a statement that it sends between a socket's error and its close, so it
  // learns of both at once.
  socket.once('error', () =>
    queueMicrotask(() => {
      socket.emit('close', true)
      // It has removed every listener, and without one another error would end the process: after a TLS
      // alert, the connection may be reset too.
      socket.on('error', () => {}).destroy()
    }),
  )
  socket.once('close', (hadError: boolean) => {
    // The first answer is to the login, which a pooler accepts even if its server is down.
    if (answers < 2) onFailure(hadAnswered)
    if (!hadError) socket.emit('error', closed())
  })
}

/**
 * postgres.js loses a connection for good if the function that opens its socket rejects. So it gets
 * a socket that fails instead.
 */
const failing = (error: Error) =>
  new Duplex({
    read() {},
    write: (_bytes, _encoding, done) => done(error),
  })
