/** The one way to say that a request failed. Everything a client sees of it comes from the error table. */
import { type ErrorCode, type ErrorRow, errorTable } from '../schemas/error.ts'

export interface ApiErrorDetails {
  /** Dotted path of the field meant; "" (default) where none is. */
  param?: string
  message?: string
  suggestion?: string
  headers?: Record<string, string>
  /** What went wrong underneath: for the log, never for the client. */
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
    // An expected answer has no use for a stack trace, and a flood of refusals would pay for one each.
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

/** The uniform 404: the same for an absent, a mistyped and a stranger's id (spec section 7.2). */
export const notFound = (param: 'id' | 'starting_after' = 'id') => new ApiError('not_found', { param })

/** What cannot be decided now is a 503 that says when to come back; never a 401. */
export const unavailable = (cause?: unknown, retryAfterS = 1) =>
  new ApiError('service_unavailable', { headers: { 'retry-after': String(retryAfterS) }, cause })

/** The envelope as bytes: the same renderer for a handler's error, a hook's and the parser's. */
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
