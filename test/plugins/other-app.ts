// Another application that uses the plugins: a bare Fastify with routes and functions of its own.
import { once } from 'node:events'
import type { Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import Fastify, { type FastifyHttpOptions, type FastifyInstance } from 'fastify'
import type { Test } from 'tap'
import type { ApiError } from '../../plugins/api-error.ts'
import type { Caller } from '../../plugins/authenticate.ts'
import errors from '../../plugins/errors.ts'
import httpFraming from '../../plugins/http-framing.ts'

export const docsBase = 'https://other.example/errors/'

export const caller: Caller = { id: 'apk_1', userId: 'usr_1', rateLimitRpm: 10, expiresAt: null }

export interface OtherApp {
  app: FastifyInstance
  /** What the errors plugin reported. */
  reported: { error: ApiError; url: string | null; requestId: string }[]
}

/** With the errors plugin, which all others need. */
export function otherApp(t: Test, options: FastifyHttpOptions<Server> = {}): OtherApp {
  let made = 0
  const newRequestId = () => `req_${++made}`
  const app: FastifyInstance = Fastify({ genReqId: newRequestId, forceCloseConnections: true, ...options })
  const reported: OtherApp['reported'] = []
  app.register(errors, {
    docsBase,
    onError: (error, request, requestId) => reported.push({ error, url: request?.url ?? null, requestId }),
  })
  app.register(httpFraming, { newRequestId })
  t.teardown(() => app.close())
  return { app, reported }
}

/**
 * Writes these bytes to the listening app and gives all it answers until it closes the connection.
 */
export async function raw(app: FastifyInstance, bytes: string): Promise<string> {
  if (!app.server.listening) await app.listen({ host: '127.0.0.1', port: 0 })
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1')
  const pieces: Buffer[] = []
  socket.on('data', (piece) => pieces.push(piece))
  socket.on('error', () => {})
  socket.setTimeout(60_000, () => socket.destroy(new Error('no end')))
  socket.write(Buffer.from(bytes, 'latin1'))
  await once(socket, 'close')
  return Buffer.concat(pieces).toString('latin1')
}

/** Status, headers (lowercase) and body of each answer on one connection. */
export function answersOf(text: string) {
  const answers: { status: number; headers: Record<string, string>; body: string }[] = []
  for (let rest = text; rest !== ''; ) {
    const end = rest.indexOf('\r\n\r\n')
    if (end < 0) throw new Error(`not an HTTP answer: ${rest}`)
    const [first, ...lines] = rest.slice(0, end).split('\r\n')
    const headers = Object.fromEntries(
      lines.map((line) => {
        const [name, value] = line.split(/: ?(.*)/s)
        return [name!.toLowerCase(), value ?? '']
      }),
    )
    const length = Number(headers['content-length'] ?? 0)
    const body = rest.slice(end + 4, end + 4 + length)
    answers.push({ status: Number(first!.split(' ')[1]), headers, body })
    rest = rest.slice(end + 4 + length)
  }
  return answers
}

const members = ['type', 'code', 'message', 'param', 'docs_url', 'request_id', 'suggestion']

/** The error of an envelope; throws where the body is none. */
export function envelopeOf(body: string): Record<string, string> {
  const { error, ...others } = JSON.parse(body)
  const whole = Object.keys(error).join() === members.join() && Object.keys(others).length === 0
  if (!whole || Object.values(error).some((value) => typeof value !== 'string')) throw new Error(body)
  return error
}
