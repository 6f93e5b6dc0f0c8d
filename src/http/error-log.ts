/**
 * What the log says of requests that failed. A flood of them must not become a flood of lines: a 401 is in the audit log and a
 * 429 in the key's counter, so they are logged at debug level only. Of 503s, and of what needs no key to be caused, there is one
 * line a second for each status, with how many were left out.
 */
import type { FastifyRequest } from 'fastify'
import type { ApiError } from '../../plugins/api-error.ts'
import { RefusalBudgetSpent } from '../guard/refusal-budget.ts'
import type { Log } from '../process/log.ts'

const lineEveryMs = 1000

export type ErrorLog = (error: ApiError, request: FastifyRequest | null, requestId: string) => void

/** `seen`: what may be told of a request. */
export function createErrorLog(
  log: Log,
  seen: (request: FastifyRequest) => Record<string, unknown>,
  now: () => number = () => performance.now(),
): ErrorLog {
  /** By what they are limited by: when the last line was written, and how many were left out since. */
  const limited = new Map<string, { loggedAtMs: number; suppressed: number }>()

  /** How many were left out before this one, or null to leave it out too. */
  function admit(limit: string): number | null {
    const last = limited.get(limit)
    if (last && now() - last.loggedAtMs < lineEveryMs) {
      last.suppressed++
      return null
    }
    limited.set(limit, { loggedAtMs: now(), suppressed: 0 })
    return last?.suppressed ?? 0
  }

  return (error, request, requestId) => {
    const { statusCode } = error
    const level = levelOf(statusCode)
    if (!log.isLevelEnabled(level)) return
    const limit = limitOf(error, request)
    const suppressed = limit === null ? undefined : admit(limit)
    if (suppressed === null) return
    const line = {
      request_id: requestId,
      status: statusCode,
      code: error.code,
      ...(request && { ...seen(request), key_id: request.caller?.id }),
      ...(statusCode === 503 && { reason: (error.cause as Error)?.message }),
      suppressed,
      ...(level === 'error' && { err: error.cause ?? error }),
    }
    log[level](line, error.message)
  }
}

/** What limits the lines about such an error; null: nothing does. */
function limitOf({ statusCode, cause }: ApiError, request: FastifyRequest | null): string | null {
  // Apart, so that a flood of strangers does not hide that a server is down.
  if (cause instanceof RefusalBudgetSpent) return 'over budget'
  if (statusCode === 503) return '503'
  // The limit of its key bounds what a caller can cause.
  return levelOf(statusCode) === 'info' && !request?.caller ? String(statusCode) : null
}

function levelOf(status: number): 'debug' | 'info' | 'warn' | 'error' {
  if (status === 503) return 'warn'
  if (status >= 500) return 'error'
  return status === 401 || status === 429 ? 'debug' : 'info'
}
