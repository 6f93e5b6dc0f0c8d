/** The one way to fail a request. Everything the client sees comes from the error table. */
import { type ErrorCode, type ErrorRow, errorTable } from '../schemas/error-table.ts'

export interface ApiErrorDetails {
  /** Dotted path of the field at fault; "" (default) if there is none. */
  param?: string
  message?: string
  suggestion?: string | undefined
  headers?: Record<string, string>
  /** The underlying error: for the log, never for the client. */
  cause?: unknown
}

export class ApiError extends Error {
  readonly code: ErrorCode
  readonly statusCode: number
  readonly param: string
  readonly suggestion: string
  readonly headers: Record<string, string>

  constructor(code: ErrorCode, details: ApiErrorDetails = {}) {
    const row: ErrorRow = errorTable[code]
    // Only an unexpected error needs a stack trace. Each refusal of a flood would pay for one.
    const stackTraceLimit = Error.stackTraceLimit
    if (row.status !== 500) Error.stackTraceLimit = 0
    super(details.message ?? row.message, { cause: details.cause })
    Error.stackTraceLimit = stackTraceLimit
    this.code = code
    this.statusCode = row.status
    this.param = details.param ?? ''
    this.suggestion = details.suggestion ?? row.suggestion
    this.headers = details.headers ?? {}
  }
}

/** The uniform 404: the same for an unknown id, a malformed one and someone else's. */
export const notFound = (param: 'id' | 'starting_after' = 'id') => new ApiError('not_found', { param })

/** A request that cannot be decided now gets a 503 that says when to retry; never a 401. */
export const unavailable = (cause?: unknown, retryAfterS = 1) =>
  new ApiError('service_unavailable', { headers: { 'retry-after': String(retryAfterS) }, cause })

/** `maxBytes`: what the route accepts. */
export const payloadTooLarge = (maxBytes: number, cause?: unknown) =>
  new ApiError('payload_too_large', { suggestion: `Send at most ${sizeOf(maxBytes)}.`, cause })

function sizeOf(bytes: number): string {
  if (bytes % 2 ** 20 === 0) return `${bytes / 2 ** 20} MiB`
  return bytes % 1024 === 0 ? `${bytes / 1024} KiB` : `${bytes} bytes`
}

/**
 * The envelope as JSON text: the one renderer for errors of handlers, hooks and the HTTP parser.
 */
export function renderEnvelope(error: ApiError, requestId: string, docsBase: string): string {
  return JSON.stringify({
    error: {
      type: errorTable[error.code].type,
      code: error.code,
      message: error.message,
      param: error.param,
      docs_url: docsBase + error.code,
      request_id: requestId,
      suggestion: error.suggestion,
    },
  })
}
