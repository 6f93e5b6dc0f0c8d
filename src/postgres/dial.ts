/**
 * Opens a connection to a Postgres server, up to the point where postgres.js takes over: TCP or
 * Unix socket, then TLS.
 */
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { opensslReason } from '../rules/openssl.ts'
import type { Address, Host } from './address.ts'
import type { Ssl } from './ssl.ts'

/** Why there is no connection. The message is for an operator. */
export class NoConnection extends Error {
  readonly code: string
  constructor(message: string, code: 'CONNECT_TIMEOUT' | 'CONNECTION_CLOSED' | 'CONNECT_UNUSABLE') {
    super(message)
    this.code = code
  }
  /** Whether retrying cannot help: not Postgres, no TLS, or a certificate that is refused. */
  get isFinal() {
    return this.code === 'CONNECT_UNUSABLE'
  }
}

export const closed = () => new NoConnection('the server closed the connection', 'CONNECTION_CLOSED')
export const timedOut = (ms: number) =>
  new NoConnection(`no answer in ${Math.round(ms)} ms`, 'CONNECT_TIMEOUT')
export const notPostgres = () => unusable('what answers there is not Postgres')
const unusable = (message: string) => new NoConnection(message, 'CONNECT_UNUSABLE')

const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])

export async function dial(
  { host, port }: Host,
  { ssl, direct }: Pick<Address, 'ssl' | 'direct'>,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Socket> {
  signal.throwIfAborted()
  const isLocal = host.startsWith('/')
  let socket = isLocal ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host)
  const timer = setTimeout(() => socket.destroy(timedOut(timeoutMs)), timeoutMs)
  const abort = () => socket.destroy(closed())
  signal.addEventListener('abort', abort)
  try {
    await next(socket, 'connect')
    // As in libpq, a Unix socket needs no TLS.
    if (ssl === null || isLocal) return socket
    if (!direct && !(await offersTls(socket, ssl))) return socket
    socket = connectTls({ socket, ...ssl.options(host), ...(direct && { ALPNProtocols: ['postgresql'] }) })
    await next(socket, 'secureConnect').catch((error) => {
      throw tlsFault(error)
    })
    return socket
  } catch (error) {
    socket.destroy()
    throw error
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', abort)
  }
}

async function offersTls(socket: Socket, ssl: Ssl): Promise<boolean> {
  socket.write(sslRequest)
  const answer = String(await next<Buffer>(socket, 'data'))
  // Accept exactly one byte: more would be plaintext that someone injected, to be read as if it had
  // come over TLS (CVE-2021-23222).
  if (answer === 'S') return true
  if (answer === 'N' && ssl.optional) return false
  if (answer === 'N') throw unusable('the server offers no TLS, and sslmode asks for it')
  // An error from Postgres itself: it could not start a process for this connection.
  if (answer.startsWith('E')) throw closed()
  throw notPostgres()
}

function tlsFault(error: Error & { code?: string }): Error {
  const { code = '', message } = error
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return unusable("the server's certificate is for another host than the one in DATABASE_URL")
  // Network errors (ECONNRESET) may be temporary.
  if (error instanceof NoConnection || (/^E[A-Z]+$/.test(code) && code !== 'EPROTO')) return error
  return unusable(`TLS: ${opensslReason(message) ?? message.trim()}`)
}

/** Resolves to the argument of the next such event. Rejects if the socket fails or closes first. */
function next<T = unknown>(socket: Socket, event: string): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const ended = () => reject(closed())
    socket.once(event, (value: T) => {
      socket.off('error', reject).off('close', ended)
      // Without a listener, an error between this step and the next would end the process.
      socket.on('error', () => {})
      resolve(value)
    })
    socket.once('error', reject).once('close', ended)
  })
}
