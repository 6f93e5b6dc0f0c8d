/**
 * Every failure leaves as the envelope of schemas/error.ts: from a handler, a hook, a validation or
 * Fastify itself. Requests that the HTTP parser refuses never reach Fastify: http-framing.ts
 * answers them, using this plugin's renderer.
 */
import type { IncomingMessage } from 'node:http'
import { finished } from 'node:stream/promises'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import type { ErrorCode } from '../schemas/error-table.ts'
import { ApiError, payloadTooLarge, renderEnvelope, unavailable } from './api-error.ts'
import { fromValidation } from './validation.ts'

export interface ErrorsOptions {
  /**
   * Where each code has its page, ending in a slash: `docs_url` is this plus the code. A function
   * if it is known only after listening.
   */
  docsBase: string | (() => string)
  /**
   * Removes secrets from what a client sent and an error would repeat: the name of an unknown
   * member.
   */
  redact?: (text: string) => string
  /**
   * Called once for each error response; for the log and the metrics. The request is null if the
   * HTTP parser refused it.
   */
  onError?: (error: ApiError, request: FastifyRequest | null, requestId: string) => void
}

declare module 'fastify' {
  interface FastifyInstance {
    /** Reports an error and renders its envelope. */
    renderError: (error: ApiError, request: FastifyRequest | null, requestId: string) => string
  }
}

/** How long the rest of a body that nobody reads may take to arrive. A stop allows a little more. */
const dropMaxMs = 3000

/** Fastify's codes → ours. Any other error is mapped by its status, or else is a 500. */
const fastifyCodes: Record<string, ErrorCode> = {
  FST_ERR_CTP_EMPTY_JSON_BODY: 'invalid_json',
  FST_ERR_CTP_INVALID_JSON_BODY: 'invalid_json',
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

export default fp<ErrorsOptions>(
  async (app, { docsBase, redact, onError }) => {
    const base = () => (typeof docsBase === 'string' ? docsBase : docsBase())

    app.decorate('renderError', (error: ApiError, request: FastifyRequest | null, requestId: string) => {
      onError?.(error, request, requestId)
      return renderEnvelope(error, requestId, base())
    })
    app.addHook('onRequest', (request, reply, done) => {
      reply.header('x-request-id', request.id)
      reply.header('x-content-type-options', 'nosniff')
      done()
    })
    app.setErrorHandler<FastifyError>((thrown, request, reply) => {
      const error = toApiError(thrown, request, redact)
      const answer = () =>
        reply
          .code(error.statusCode)
          .headers(error.headers)
          .header('content-type', 'application/json; charset=utf-8')
          .send(app.renderError(error, request, request.id))
      return isUnreadAtEnd(request, reply) ? dropBody(request.raw).then(answer) : answer()
    })
  },
  { name: 'errors' },
)

/** The connection ends with this response (after a 413 always), and the client may still be sending. */
export const isUnreadAtEnd = ({ raw }: FastifyRequest, reply: FastifyReply) =>
  !raw.complete && (!reply.raw.shouldKeepAlive || reply.hasHeader('connection'))

/**
 * Closing the connection of a client that is still sending is a reset, and it may lose the response.
 * So first read the rest, if it comes in time. Never rejects.
 */
export async function dropBody(body: IncomingMessage) {
  await finished(body.resume(), { signal: AbortSignal.timeout(dropMaxMs) }).catch(() => {})
}

function toApiError(error: FastifyError, request: FastifyRequest, redact: ErrorsOptions['redact']): ApiError {
  if (error instanceof ApiError) return error
  // Code may throw null or a string, which says nothing.
  if (typeof error !== 'object' || error === null) return new ApiError('internal_error', { cause: error })
  if (error.validation) return fromValidation(error, redact)
  const code = fastifyCodes[error.code] ?? byStatus[error.statusCode ?? 500] ?? 'internal_error'
  if (code === 'service_unavailable') return unavailable(error)
  if (code === 'payload_too_large') return payloadTooLarge(request.routeOptions.bodyLimit!, error)
  return new ApiError(code, { cause: error })
}
