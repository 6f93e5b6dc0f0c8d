/**
 * HTTP/1.1 as RFC 9112 wants it, where Node is more lenient: one Host, one way to tell where a body
 * ends, requests of one connection answered one after the other. What the parser refuses gets the
 * envelope too.
 *
 * Register it right after `errors`: its hook must run before any that reads the request.
 */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import type { ErrorCode } from '../schemas/error-table.ts'
import { ApiError } from './api-error.ts'

export interface HttpFramingOptions {
  /** A new id for a request that the parser refused; the same maker as Fastify's `genReqId`. */
  newRequestId: () => string
}

/** Node's parser codes → ours; everything else it refuses is a bad request. */
const parserCodes: Record<string, ErrorCode> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

/**
 * Timed-out connections closed in one turn of the event loop. Thousands may time out at once, and
 * other requests are waiting.
 */
const timedOutPerTurn = 16

/**
 * Requests of all connections that wait for the responses before theirs: about 2.5 kB each, and there may be
 * over 2000 in one chunk. Then a connection is closed that has more than its own few.
 */
const waitingMax = 20_000
const waitingOfEach = 16

/** The response to the request that came last on a connection. */
const latest = Symbol('latest response')
/** How many requests of a connection wait for the responses before theirs. */
const waiting = Symbol('waiting requests')
type Connection = Socket & { [latest]?: ServerResponse; [waiting]?: number }

export default fp<HttpFramingOptions>(
  async (app, { newRequestId }) => {
    if (app.initialConfig.http2) throw new Error('http-framing is for HTTP/1: HTTP/2 has frames of its own')
    app.addHook('onRequest', (request, reply, done) => {
      const socket: Connection = request.raw.socket
      if (socket.writableEnded) return // an earlier response was the connection's last
      socket[latest] = reply.raw
      if (reply.raw.socket !== null) return checkFraming(request, reply, done)
      afterEarlierResponses(request, reply, () => checkFraming(request, reply, done))
    })

    let waitingInAll = 0
    /**
     * Requests of one connection run one after the other, and none after the response that ends it
     * (RFC 9112, 9.3.2 and 9.6). Node hands over all that have arrived; a response gets its socket
     * when those before it are sent, and never after the last one.
     */
    function afterEarlierResponses({ raw }: FastifyRequest, reply: FastifyReply, run: () => void) {
      const socket: Connection = raw.socket
      if (socket[waiting] === undefined) {
        socket[waiting] = 0
        // Node resumes it with the end of each request, and when a body is read.
        socket.on('resume', () => {
          if (socket[waiting]! > 0) socket.pause()
        })
        socket.once('close', () => {
          waitingInAll -= socket[waiting]!
        })
      }
      if (waitingInAll >= waitingMax && socket[waiting] >= waitingOfEach) socket.destroy()
      // The rest of a chunk, after that.
      if (socket.destroyed) return
      // Stop reading until the last one runs, or the requests behind would queue up without bound.
      socket[waiting]++
      waitingInAll++
      socket.pause()
      joinChunks(raw)
      // In a turn of its own: otherwise a thousand requests that are answered at once would hold up all
      // other connections.
      reply.raw.once('socket', () => setImmediate(runNext, socket, run))
    }

    function runNext(socket: Connection, run: () => void) {
      // The client is gone, and Node is failing what was written. What this wrote now, it would fail
      // together with the same once more, and a second `finish` of a response ends the process.
      if (socket.destroyed || socket.errored !== null) return
      waitingInAll--
      if (--socket[waiting]! === 0) socket.resume()
      run()
    }

    // Node itself would answer a request without Host, with an empty body. It would also hide the
    // headers behind the 1000th, among them perhaps a second Host or Authorization. Their total
    // size is bounded anyway. And it would not answer a client that has closed its sending side, though
    // its request is carried out.
    Object.assign(app.server, { requireHostHeader: false, maxHeadersCount: 0, httpAllowHalfOpen: true })
    app.server.removeAllListeners('clientError')
    const refused = new WeakSet<Socket>()
    const timedOut: Connection[] = []
    app.server.on('clientError', (error: NodeJS.ErrnoException, socket: Connection) => {
      // The parser reports the same fault again for each further chunk.
      if (refused.has(socket)) return
      refused.add(socket)
      if (error.code !== 'ERR_HTTP_REQUEST_TIMEOUT' || responseDue(socket)) return refuse(error, socket)
      if (timedOut.push(socket) === 1) setImmediate(refuseTimedOut, error)
    })
    function refuseTimedOut(error: Error) {
      for (const socket of timedOut.splice(0, timedOutPerTurn)) {
        // Its headers arrived after all.
        if (responseDue(socket)) refused.delete(socket)
        else refuse(error, socket)
      }
      if (timedOut.length > 0) setImmediate(refuseTimedOut, error)
    }
    // This is no proxy (RFC 9110, 9.3.6). Node would just close the connection.
    app.server.on('connect', (_request, socket: Socket) => {
      // Node no longer listens to it, and an error that nobody listens to ends the process.
      socket.on('error', () => {})
      refuse(new Error('CONNECT'), socket)
    })
    // A server may ignore an Expect other than 100-continue (RFC 9110, 10.1.1). Node's own 417
    // would bypass every hook.
    app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response))

    /**
     * Answers what the parser refused, which no handler sees. First the responses still due on the
     * connection are sent, or the client would take this one for one of them. If a body broke off, its
     * request already has a handler: that gets the error when it reads the body, and responds.
     */
    function refuse(error: NodeJS.ErrnoException, socket: Connection) {
      // A connection that was opened in advance and never used expects no response.
      if (!socket.writable || socket.bytesRead === 0) return socket.destroy()
      const code = parserCodes[error.code ?? ''] ?? 'bad_request'
      const brokenBody = socket[latest]?.req.complete === false ? socket[latest].req : null
      const finish = () => (brokenBody || !socket.writable ? socket.destroy() : answer(socket, code, error))
      const due = responseDue(socket)
      if (due === null) return finish()
      if (brokenBody) failBody(brokenBody, code, error)
      due.once('close', finish)
    }

    function answer(socket: Socket, code: ErrorCode, cause: Error) {
      const error = new ApiError(code, { cause })
      const requestId = newRequestId()
      const body = app.renderError(error, null, requestId)
      socket.end(
        `HTTP/1.1 ${error.statusCode} ${STATUS_CODES[error.statusCode]}\r\n` +
          `x-request-id: ${requestId}\r\nx-content-type-options: nosniff\r\ncontent-type: application/json; charset=utf-8\r\n` +
          `content-length: ${Buffer.byteLength(body)}\r\ndate: ${new Date().toUTCString()}\r\nconnection: close\r\n\r\n${body}`,
      )
      socket.destroySoon()
    }
  },
  { name: 'http-framing', dependencies: ['errors'] },
)

/** The last response still due on a connection, or null. */
export function responseDue(socket: Connection): ServerResponse | null {
  const response = socket[latest]
  return response === undefined || response.closed ? null : response
}

/** A host and a port (RFC 3986, 3.2.2): a name, which may be empty, or an address in brackets. */
const host = /^(?:[\w.~!$&'()*+,;=%-]*|\[[\w.~!$&'()*+,;=:-]+\])(?::\d*)?$/

/**
 * Rejects a request with an ambiguous host or an ambiguous end; Node accepts these. Reads the raw
 * list, because Node builds its object of headers only for a request that is asked for it.
 */
function checkFraming({ raw }: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) {
  const { rawHeaders, httpVersion } = raw
  let hosts = 0
  let isHostValid = true
  let upgrades = false
  let framed = true
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const { length } = rawHeaders[i]!
    if (length !== 4 && length !== 7 && length !== 17) continue
    const name = rawHeaders[i]!.toLowerCase()
    if (name === 'host') {
      hosts++
      isHostValid &&= host.test(rawHeaders[i + 1]!)
    } else if (name === 'upgrade') upgrades = true
    // RFC 9112, 6.1: we know no other coding, and HTTP/1.0 has none.
    else if (name === 'transfer-encoding') {
      framed &&= httpVersion === '1.1' && rawHeaders[i + 1]!.toLowerCase() === 'chunked'
      joinChunks(raw)
    }
  }
  // After a request that offers an upgrade, Node drops the rest of the chunk and would go on
  // reading inside another request.
  if (upgrades) reply.header('connection', 'close')
  if (httpVersion !== '1.1' && httpVersion !== '1.0') {
    return reject('The version is neither HTTP/1.1 nor HTTP/1.0.')
  }
  // RFC 9112, 3.2: a request without Host, with two, or with one that is no host is a 400. Node
  // only looks for the first case.
  if (hosts !== 1 && (hosts > 0 || httpVersion === '1.1')) {
    return reject('An HTTP/1.1 request needs exactly one Host header.')
  }
  if (!isHostValid) return reject('The Host header is not a host with or without a port.')
  if (!framed) return reject('The only Transfer-Encoding is chunked, and only in HTTP/1.1.')
  done()

  function reject(message: string) {
    reply.header('connection', 'close')
    done(new ApiError('bad_request', { message }))
  }
}

const nothing = Buffer.alloc(0)
const joinedMin = 1024

/**
 * Joins the chunks of a body that arrive together. Node makes a Buffer of each, which costs some 400
 * bytes: a body in chunks of one byte would take 400 times its size. Each is copied at once, because
 * those of many connections may arrive before the first body is read.
 */
function joinChunks(request: IncomingMessage) {
  if (Object.hasOwn(request, 'push')) return
  let joined = nothing
  let length = 0
  const push = (chunk: Buffer | null) => Readable.prototype.push.call(request, chunk)
  const flush = () => {
    const all = joined.subarray(0, length)
    // A client may send a byte at a time, so keep no kilobyte for each.
    if (length > 0) push(2 * length < joined.length ? Buffer.from(all) : all)
    joined = nothing
    length = 0
  }
  request.push = (chunk: Buffer | null) => {
    if (chunk === null) {
      flush()
      return push(null)
    }
    // Node hands over the chunks of a read one after the other, with ticks in between.
    if (length === 0) setImmediate(flush)
    if (length + chunk.length > joined.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(joinedMin, 2 * joined.length, length + chunk.length))
      joined.copy(larger, 0, 0, length)
      joined = larger
    }
    length += chunk.copy(joined, length)
    return request.readableLength + length < request.readableHighWaterMark
  }
}

/** Passes the error to all that read the body: those that do so now, and any that come later. */
function failBody(request: IncomingMessage, code: ErrorCode, cause: Error) {
  const error = new ApiError(code, { cause })
  function give(event: string) {
    if (event !== 'error') return
    request.off('newListener', give)
    process.nextTick(() => {
      // While it handles the error, a reader may hand the body on to another one.
      request.on('newListener', give)
      // A reader may have stopped again: an error that nobody listens to ends the process.
      if (request.listenerCount('error') > 0) request.emit('error', error)
    })
  }
  give('error')
}
