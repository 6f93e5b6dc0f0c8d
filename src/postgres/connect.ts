/**
 * postgres.js on connections of our own. Left to itself postgres.js 3.4 connects again at once, without end, to a port that
 * accepts and closes or that speaks another protocol: 500 times a second, with one CPU busy.
 */
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import postgres, { type Sql } from 'postgres'
import { readAddress } from './address.ts'
import { closed, dial, notPostgres } from './dial.ts'
import type { SslSettings } from './ssl.ts'

/** Between two tries on a server that did not answer, or on the whole list of hosts. */
const pauseMs = 200
/** The first byte from a Postgres server: authentication, error, notice, or another protocol version. */
const firstBytes = [...'RENv'].map((letter) => letter.charCodeAt(0))

export type Connect = (options: postgres.Options<Record<string, never>> & { connect_timeout: number }) => Sql

/** Throws if the settings for TLS are wrong. */
export function postgresAt(databaseUrl: string, env: SslSettings = {}): Connect {
  const address = readAddress(databaseUrl, env)
  const { hosts } = address
  let current = 0
  let notBeforeMs = 0

  const left = (index: number, hadAnswered: boolean) => {
    if (current === index) current = (index + 1) % hosts.length
    const wasLast = index === hosts.length - 1
    if (wasLast && (hosts.length > 1 || !hadAnswered)) notBeforeMs = performance.now() + pauseMs
  }

  async function open(timeoutMs: number, signal: AbortSignal): Promise<Duplex> {
    const index = current
    try {
      if (index === 0) await sleep(Math.max(0, notBeforeMs - performance.now()), undefined, { signal })
      const socket = await dial(hosts[index]!, address, timeoutMs, signal)
      watch(socket, (hadAnswered) => left(index, hadAnswered))
      return socket
    } catch (error) {
      left(index, false)
      return failing(error as Error)
    }
  }

  return (options) => {
    const ended = new AbortController()
    const ours: object = {
      host: hosts.map(({ host }) => host),
      port: hosts.map(({ port }) => port),
      ssl: false,
      sslnegotiation: null,
      socket: () => open(options.connect_timeout * 1000, ended.signal),
    }
    const sql = postgres(address.url, { ...options, ...ours }) as Sql
    const { end } = sql
    // postgres.js would use a connection that is made after the end, and never close it.
    sql.end = (how) => end(how).finally(() => ended.abort())
    return sql
  }
}

/** Tells postgres.js of an end that it would answer with the next try, and tells it when the answer is not Postgres's. */
function watch(socket: Socket, onEnd: (hadAnswered: boolean) => void) {
  let hadAnswered = false
  socket.once('data', (bytes: Buffer) => {
    hadAnswered = firstBytes.includes(bytes[0]!)
    if (hadAnswered) return
    socket.emit('error', notPostgres())
    socket.destroy()
    // postgres.js gets the same bytes, and prints what it takes for unknown messages: this is one that never ends.
    bytes.fill(0xff)
  })
  socket.once('close', (hadError: boolean) => {
    onEnd(hadAnswered)
    if (!hadError) socket.emit('error', closed())
  })
}

/** postgres.js loses a connection for good when the function that opens its socket rejects. So it gets one that fails. */
const failing = (error: Error) =>
  new Duplex({
    read() {},
    write: (_bytes, _encoding, done) => done(error),
  })
