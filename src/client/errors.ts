/** The one error that a call rejects with, whether the service refused it or could not be reached. */
import type { components } from './api.ts'

export type ErrorCode =
  | components['schemas']['ErrorEnvelope']['error']['code']
  /** No response: the service could not be reached, or the connection broke. */
  | 'no_response'
  /** No complete response within `timeoutMs`. */
  | 'timeout'
  /** A response that did not come from the service: perhaps from a proxy in between. */
  | 'unexpected_response'

export interface ErrorDetails {
  status: number
  code: ErrorCode
  param?: string
  requestId?: string | null
  suggestion: string
  docsUrl?: string | null
  retryAfterS?: number | null
  cause?: unknown
}

export class LatchkeyError extends Error {
  override readonly name = 'LatchkeyError'
  /** The HTTP status; 0 without a response. */
  readonly status: number
  readonly code: ErrorCode
  /** Dotted path of the field at fault; "" if there is none. */
  readonly param: string
  /** For the operator, who finds a 401 in the audit log and other errors in the log of the service. */
  readonly requestId: string | null
  /** What to do about it, for a person. */
  readonly suggestion: string
  /** A page about the code. */
  readonly docsUrl: string | null
  /** Seconds to wait before the next attempt, if the service said so. */
  readonly retryAfterS: number | null

  constructor(message: string, details: ErrorDetails) {
    super(message, { cause: details.cause })
    this.status = details.status
    this.code = details.code
    this.param = details.param ?? ''
    this.requestId = details.requestId ?? null
    this.suggestion = details.suggestion
    this.docsUrl = details.docsUrl ?? null
    this.retryAfterS = details.retryAfterS ?? null
  }
}

/** A proxy, too, may have passed the request on before it gave up, or cut the response short. */
const maybeDone = 'If this was a change, it may have been made: read the resource before you repeat it.'

/** The error that a response carries. `body` is the parsed JSON, perhaps a proxy's. */
export function errorOf({ status, headers }: Response, body: unknown): LatchkeyError {
  const retryAfterS = secondsIn(headers.get('retry-after'))
  const { error } = (body ?? {}) as Partial<components['schemas']['ErrorEnvelope']>
  const texts = [error?.code, error?.message, error?.suggestion, error?.request_id]
  if (error === undefined || !texts.every((text) => typeof text === 'string') || status < 400) {
    const isRefusal = status >= 300 && status < 500
    return new LatchkeyError(`The response (status ${status}) did not come from Latchkey.`, {
      status,
      code: 'unexpected_response',
      requestId: headers.get('x-request-id'),
      suggestion: `Check \`baseUrl\`, and the proxies in between.${isRefusal ? '' : ` ${maybeDone}`}`,
      retryAfterS,
    })
  }
  const { code, param, suggestion } = error
  const { docs_url: docsUrl, request_id: requestId } = error
  return new LatchkeyError(error.message, {
    status,
    code,
    param,
    requestId,
    suggestion,
    docsUrl,
    retryAfterS,
  })
}

/** Seconds, or a date (RFC 9110, 10.2.3). A date without a day of the week is not an HTTP date. */
function secondsIn(retryAfter: string | null): number | null {
  if (retryAfter === null) return null
  if (/^[0-9]+$/.test(retryAfter)) return Number(retryAfter)
  const atMs = /^[A-Z][a-z]+,? /.test(retryAfter) ? Date.parse(retryAfter) : NaN
  return Number.isNaN(atMs) ? null : Math.max(0, Math.ceil((atMs - Date.now()) / 1000))
}

/** `isTimeout`: the time of the attempt was up. */
export const noResponse = (cause: unknown, isTimeout: boolean) =>
  new LatchkeyError(isTimeout ? 'The service did not respond in time.' : 'There was no response.', {
    status: 0,
    code: isTimeout ? 'timeout' : 'no_response',
    suggestion: `Check \`baseUrl\` and the network. ${maybeDone}`,
    cause,
  })
