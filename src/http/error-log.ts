/**
 * What the log says of requests that failed. Of those that a flood is made of it says little: a 401 is in the audit log and a
 * 429 in the key's counter, so they are told at debug level only; of 503s one line a second, with how many there were.
 */
import type { FastifyRequest } from 'fastify'
import type { ApiError } from '../../plugins/api-error.ts'
import type { Log } from '../process/log.ts'

const unavailableEveryMs = 1000

export type ErrorLog = (error: ApiError, request: FastifyRequest | null, requestId: string) => void

/** `seen`: what may be told of a request. */
export function createErrorLog(
  log: Log,
  seen: (request: FastifyRequest) => Record<string, unknown>,
  now: () => number = () => performance.now(),
): ErrorLog {
  let loggedAtMs = -Infinity
  let suppressed = 0

  return (error, request, requestId) => {
    const { statusCode } = error
    const level = levelOf(statusCode)
    if (!log.isLevelEnabled(level)) return
    if (statusCode === 503) {
      if (now() - loggedAtMs < unavailableEveryMs) {
        suppressed++
        return
      }
      loggedAtMs = now()
    }
    const line = {
      request_id: requestId,
      status: statusCode,
      code: error.code,
      ...(request && { ...seen(request), key_id: request.caller?.id }),
      ...(statusCode === 503 && { reason: (error.cause as Error)?.message, suppressed }),
      ...(level === 'error' && { err: error.cause ?? error }),
    }
    if (statusCode === 503) suppressed = 0
    log[level](line, error.message)
  }
}

function levelOf(status: number): 'debug' | 'info' | 'warn' | 'error' {
  if (status === 503) return 'warn'
  if (status >= 500) return 'error'
  return status === 401 || status === 429 ? 'debug' : 'info'
}
