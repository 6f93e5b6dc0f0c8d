/**
 * Logs requests that failed. A flood of requests must not become a flood of lines. 401s are in the
 * audit log and 429s in the key's counter, so both are logged at debug level only. 503s, and errors
 * that anyone can cause without a key, get one line a second for each status, with the number of
 * lines left out.
 */
import type { FastifyRequest } from 'fastify'
import type { ApiError } from '../../plugins/api-error.ts'
import { RefusalBudgetSpent } from '../guard/refusal-budget.ts'
import type { Lines } from '../process/log.ts'

const lineEveryMs = 1000

export type ErrorLog = (error: ApiError, request: FastifyRequest | null, requestId: string) => void

/** `fieldsOf`: the fields of a request that may be logged. */
export function createErrorLog(
  log: Lines,
  fieldsOf: (request: FastifyRequest) => Record<string, unknown>,
): ErrorLog {
  /** For each limit, when its last line was written, and how many were left out since. */
  const limited = new Map<string, { loggedAtMs: number; suppressed: number }>()

  /** Returns how many lines were left out before this one, or null to leave this one out too. */
  function admit(limit: string): number | null {
    const last = limited.get(limit)
    if (last && performance.now() - last.loggedAtMs < lineEveryMs) {
      last.suppressed++
      return null
    }
    limited.set(limit, { loggedAtMs: performance.now(), suppressed: 0 })
    return last?.suppressed ?? 0
  }

  return (error, request, requestId) => {
    const { statusCode } = error
    const level = levelOf(statusCode)
    if (log.isLevelEnabled?.(level) === false) return
    const limit = limitOf(error, request)
    const suppressed = limit === null ? undefined : admit(limit)
    if (suppressed === null) return
    const line = {
      request_id: requestId,
      status: statusCode,
      code: error.code,
      ...(request && { ...fieldsOf(request), key_id: request.caller?.id }),
      ...(statusCode === 503 && { reason: (error.cause as Error)?.message }),
      suppressed,
      ...(level === 'error' && { err: bare(error.cause ?? error) }),
    }
    log[level](line, error.message)
  }
}

/** Without further members: an error of Postgres quotes the row. pino reads the type off the prototype. */
function bare(fault: unknown) {
  if (!(fault instanceof Error)) return fault
  const { message, stack } = fault
  return Object.create(Object.getPrototypeOf(fault), { message: { value: message }, stack: { value: stack } })
}

/** The limit that applies to lines about this error; null if none does. */
function limitOf({ statusCode, cause }: ApiError, request: FastifyRequest | null): string | null {
  // Separate from other 503s, so that a flood from one address does not hide that a server is down.
  if (cause instanceof RefusalBudgetSpent) return 'over budget'
  if (statusCode === 503) return '503'
  // A caller's errors are bounded by the rate limit of its key.
  return levelOf(statusCode) === 'info' && !request?.caller ? String(statusCode) : null
}

function levelOf(status: number): 'debug' | 'info' | 'warn' | 'error' {
  if (status === 503) return 'warn'
  if (status >= 500) return 'error'
  return status === 401 || status === 429 ? 'debug' : 'info'
}
