/**
 * Every failure leaves as the envelope of schemas/error.ts: a handler's error, a hook's, a validation's,
 * Fastify's own and the HTTP parser's.
 */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import type { ErrorCode } from '../schemas/error.ts'
import { ApiError, renderEnvelope, unavailable } from './api-error.ts'
import { fromValidation } from './validation.ts'

export interface ErrorsOptions {
  /** Where each code has its page, ending in a slash: `docs_url` is this plus the code. A function if only listening tells. */
  docsBase: string | (() => string)
  /** A new id for a request that the parser refused; the same maker as Fastify's `genReqId`. */
  newRequestId: () => string
  /** Takes secrets out of what a client has sent and an error would repeat: the name of an unknown member. */
  redact?: (text: string) => string
  /** Called once for each error that leaves, with what is underneath it; for the log and the metrics. */
  onError?: (error: ApiError, request: FastifyRequest | null, requestId: string) => void
}

/** Fastify's codes → ours. What is not here goes by its status. */
const fastifyCodes: Record<string, ErrorCode> = {
  FST_ERR_CTP_EMPTY_JSON_BODY: 'invalid_json',
  FST_ERR_CTP_BODY_TOO_LARGE: 'payload_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_ROUTE_MISSING_CONTENT_TYPE: 'unsupported_media_type',
  FST_ERR_NOT_FOUND: 'route_not_found',
}

const byStatus: Record<number, ErrorCode> = {
  400: 'bad_request',
  408: 'request_timeout',
  413: 'payload_too_large',
  415: 'unsupported_media_type',
  431: 'headers_too_large',
  503: 'service_unavailable',
}

/** Node's parser codes → ours; everything else it refuses is a bad request. */
const parserCodes: Record<string, ErrorCode> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

/** Connections out of time that are ended in one turn of the event loop: thousands come at once, and others are waiting. */
const lateAtOnce = 16

function toApiError(error: FastifyError, redact?: ErrorsOptions['redact']): ApiError {
  if (error instanceof ApiError) return error
  // Whoever throws null or a string has said nothing that could be looked into.
  if (typeof error !== 'object' || error === null) return new ApiError('internal_error', { cause: error })
  if (error.validation) return fromValidation(error, redact)
  const code = fastifyCodes[error.code] ?? byStatus[error.statusCode ?? 500] ?? 'internal_error'
  if (code === 'service_unavailable') return unavailable(error)
  return new ApiError(code, { cause: error })
}

export default fp<ErrorsOptions>(
  async (app, options) => {
    const { docsBase, redact, onError } = options

    function send(error: ApiError, request: FastifyRequest, reply: FastifyReply) {
      onError?.(error, request, request.id)
      return reply
        .code(error.statusCode)
        .headers(error.headers)
        .header('content-type', 'application/json; charset=utf-8')
        .send(renderEnvelope(error, request.id, baseOf(docsBase)))
    }

    app.addHook('onRequest', (request, reply, done) => {
      if (request.raw.socket.writableEnded) return // the answer before it has left already, and was the last
      if (reply.raw.socket !== null) return begin(request, reply, done)
      afterThoseBefore(request, reply, () => begin(request, reply, done))
    })
    app.setErrorHandler<FastifyError>((error, request, reply) =>
      send(toApiError(error, redact), request, reply),
    )
    // Else Node itself answers a request without Host, with nothing in it, and hides the headers behind the 1000th: a second
    // Host or Authorization among them. Their size bounds them.
    Object.assign(app.server, { requireHostHeader: false, maxHeadersCount: 0 })
    app.server.removeAllListeners('clientError')
    const refused = new WeakSet<Socket>()
    const late: Connection[] = []
    app.server.on('clientError', (error: NodeJS.ErrnoException, socket: Connection) => {
      // The parser tells of the same fault again with each piece that still comes.
      if (refused.has(socket) && error.code !== 'ECONNRESET') return
      refused.add(socket)
      if (error.code !== 'ERR_HTTP_REQUEST_TIMEOUT' || socket._httpMessage)
        return answerClientError(error, socket, options)
      if (late.push(socket) === 1) setImmediate(endSome, error)
    })
    function endSome(error: Error) {
      for (const socket of late.splice(0, lateAtOnce)) {
        // Its headers have come after all, before it was its turn.
        if (socket._httpMessage) refused.delete(socket)
        else answerClientError(error, socket, options)
      }
      if (late.length > 0) setImmediate(endSome, error)
    }
    // This is no proxy (RFC 9110, 9.3.6); Node would end the connection without a word.
    app.server.on('connect', (_request, socket: Socket) => {
      answerClientError(new Error('CONNECT'), socket, options)
    })
    // An Expect other than 100-continue may be ignored (RFC 9110, 10.1.1); Node's own 417 would bypass every hook.
    app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response))
  },
  { name: 'errors' },
)

const baseOf = (docsBase: ErrorsOptions['docsBase']) => (typeof docsBase === 'string' ? docsBase : docsBase())

/**
 * Requests of one connection run one after the other, and none behind an answer that ends it (RFC 9112, 9.3.2 and 9.6): Node
 * hands over whatever has arrived. A response that waits for those before it has no socket; after the last one it never gets it.
 */
function afterThoseBefore({ raw }: FastifyRequest, reply: FastifyReply, run: () => void) {
  // What comes behind is not read meanwhile, or it would be a queue without a bound.
  raw.socket.pause()
  reply.raw.once('socket', () => {
    raw.socket.resume()
    run()
  })
}

/**
 * Sets the request id, and rejects a request with an ambiguous host or an ambiguous end; Node accepts these.
 * Reads the raw list: Node would make its object of headers for each request that somebody asks it of.
 */
function begin({ id, raw }: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) {
  const { rawHeaders, httpVersion } = raw
  let hosts = 0
  let upgrades = false
  let framed = true
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const { length } = rawHeaders[i]!
    if (length !== 4 && length !== 7 && length !== 17) continue
    const name = rawHeaders[i]!.toLowerCase()
    if (name === 'host') hosts++
    else if (name === 'upgrade') upgrades = true
    // RFC 9112, 6.1: another coding is not known here, and in HTTP/1.0 there is none.
    else if (name === 'transfer-encoding')
      framed &&= httpVersion === '1.1' && rawHeaders[i + 1]!.toLowerCase() === 'chunked'
  }
  reply.header('x-request-id', id)
  reply.header('x-content-type-options', 'nosniff')
  // Node drops what is left of a piece behind an offer to upgrade, and would then read on in the middle of a request.
  if (upgrades) reply.header('connection', 'close')
  if (httpVersion !== '1.1' && httpVersion !== '1.0') {
    return refuse('The version is neither HTTP/1.1 nor HTTP/1.0.')
  }
  // RFC 9112, 3.2: a request without Host, or with two, is a 400. Node looks for the first case only.
  if (hosts !== 1 && (hosts > 0 || httpVersion === '1.1')) {
    return refuse('An HTTP/1.1 request needs exactly one Host header.')
  }
  if (!framed) return refuse('The only Transfer-Encoding is chunked, and only in HTTP/1.1.')
  done()

  function refuse(message: string) {
    reply.header('connection', 'close')
    done(new ApiError('bad_request', { message }))
  }
}

/** What Node knows of a connection and does not tell: the request being parsed, and the response due next. */
type Connection = Socket & {
  parser?: { incoming?: IncomingMessage | null } | null
  _httpMessage?: ServerResponse | null
}

/**
 * What the parser refused has no handler: the answer is written to the socket, after the answers still due on it
 * (pipelining), or the client would take it for one of those. Where a body broke off, its request has a handler, and that gets the
 * error when it reads the body; if it never does, its answer stands.
 */
function answerClientError(error: NodeJS.ErrnoException, socket: Connection, options: ErrorsOptions) {
  const { docsBase, newRequestId, onError } = options
  if (error.code === 'ECONNRESET' || !socket.writable) return socket.destroy()
  const code = parserCodes[error.code ?? ''] ?? 'bad_request'
  const due = socket._httpMessage
  const broken = socket.parser?.incoming
  const brokenOff = broken != null && !broken.complete
  if (due != null) {
    if (brokenOff && due.req === broken) failBody(broken, code, error)
    due.once('close', () => answerClientError(error, socket, options))
    return
  }
  if (brokenOff) return socket.destroy()
  const apiError = new ApiError(code, { cause: error })
  const requestId = newRequestId()
  onError?.(apiError, null, requestId)
  const body = renderEnvelope(apiError, requestId, baseOf(docsBase))
  socket.end(
    `HTTP/1.1 ${apiError.statusCode} ${STATUS_CODES[apiError.statusCode]}\r\n` +
      `x-request-id: ${requestId}\r\nx-content-type-options: nosniff\r\ncontent-type: application/json; charset=utf-8\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\ndate: ${new Date().toUTCString()}\r\nconnection: close\r\n\r\n${body}`,
  )
  socket.destroySoon()
}

/** Passes the error to the reader of the body, now or once there is one. */
function failBody(request: IncomingMessage, code: ErrorCode, cause: Error) {
  const error = new ApiError(code, { cause })
  if (request.listenerCount('error') > 0) {
    request.emit('error', error)
    return
  }
  request.on('newListener', function give(event) {
    if (event !== 'error') return
    request.off('newListener', give)
    process.nextTick(() => {
      // Who began to read may have stopped again: nobody would hear it, which ends the process.
      if (request.listenerCount('error') > 0) request.emit('error', error)
    })
  })
}
