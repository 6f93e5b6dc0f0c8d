/**
 * `import { createGuard } from 'latchkey/guard'`: authenticates and counts a request of any server,
 * whatever its framework.
 */
import { type ApiError, unavailable } from '../../plugins/api-error.ts'
import { type Answer, type Caller, type Counted, remainingOf, tokenIn } from '../../plugins/verdict.ts'
import { ConfigError } from '../config.ts'
import { askedOf, type Sent, shownOf } from '../http/routes/actor.ts'
import { isRequestId, newId } from '../rules/id.ts'
import { type Checks, callerOf, openChecks, rateHeadersOf } from './checks.ts'
import { configOf, type LatchkeyOptions } from './options.ts'

export { rememberAddresses } from '../http/peer-address.ts'

export interface GuardOptions extends LatchkeyOptions {
  /** Hears when a server goes down and comes back. Warnings and errors go to the console unless given. */
  log?: GuardLog | undefined
}

/** As console, pino and most loggers are. */
export type GuardLog = Record<
  'debug' | 'info' | 'warn' | 'error',
  (fields: object | string, message?: string) => void
>

/** The value of an Authorization header, or an array with that of each, if any. */
export type Authorization = string | readonly string[] | null | undefined

/** What the audit log stores of a refused request. */
export interface Request {
  /**
   * Shown to the client and stored: 1 to 64 visible ASCII characters, never the client's own.
   * Minted unless given.
   */
  requestId?: string | undefined
  method?: string | undefined
  /** A query string is not stored. */
  path?: string | undefined
  /** Of the client. Refusals are bounded for each address. */
  ip?: string | undefined
  userAgent?: string | undefined
}

export interface Passed {
  ok: true
  caller: Caller
  /** Requests per minute, and how many are left of this minute. */
  limit: number
  remaining: number
  /** When the minute ends, Unix seconds. */
  resetAtS: number
  /** x-ratelimit-limit, -remaining and -reset, for the response. */
  headers: Record<string, string>
}

export interface Refused extends Answer {
  ok: false
}

export interface Guard {
  /**
   * Resolves once the request is counted, or its refusal committed. Never rejects: what cannot be
   * decided is a 503.
   */
  check(authorization: Authorization, request?: Request): Promise<Passed | Refused>
  /** For Prometheus, in its text format. */
  metrics(): Promise<string>
  /** Waits for the checks under way, then writes what is queued and disconnects. Later checks are 503s. */
  close(): Promise<void>
}

/**
 * Resolves once Postgres answers; a Redis that is down does not hold it up. Rejects with a line
 * that names what is wrong, never its value.
 */
export async function createGuard(options: GuardOptions): Promise<Guard> {
  const config = configOf(options, ['log'])
  const { log = consoleLog, patience } = options
  const methods = Object.keys(consoleLog) as (keyof GuardLog)[]
  if (methods.some((method) => typeof log?.[method] !== 'function'))
    throw new ConfigError(`latchkey: log must have the methods ${methods.join(', ')}`)
  const checks = await openChecks(config, log, { patience })
  let underWay = 0
  let closing: Promise<void> | undefined
  let allAnswered = () => {}

  async function close() {
    if (underWay > 0) {
      await new Promise<void>((resolve) => {
        allAnswered = resolve
      })
    }
    await checks.close()
  }

  return {
    check(authorization, request) {
      const given = request ?? {}
      const id = isRequestId(given.requestId) ? given.requestId : newId('req_')
      const refused = (error: ApiError, counted?: Counted): Refused => ({
        ok: false,
        ...checks.answer(error, counted, id),
      })
      if (closing) return Promise.resolve(refused(unavailable(closed)))
      let presented: ReturnType<typeof tokenIn>
      try {
        presented = tokenIn(authorization, checks.start)
      } catch (error) {
        // Not a text, whatever the types say.
        return Promise.resolve(refused(unavailable(error)))
      }
      underWay++
      return new Promise((resolve) => {
        checks.check(
          presented,
          (denied) => checks.record(recordOf(given, authorization, checks.format, id), denied),
          (error, counted) => {
            resolve(error === null ? passed(counted!) : refused(error, counted))
            if (--underWay === 0) allAnswered()
          },
        )
      })
    },
    metrics: checks.metrics,
    close: () => (closing ??= close()),
  }
}

const closed = new Error('the guard is closed')

const consoleLog: GuardLog = {
  debug() {},
  info() {},
  warn: (...line) => console.warn('latchkey:', ...line),
  error: (...line) => console.error('latchkey:', ...line),
}

function recordOf(request: Sent, authorization: Authorization, format: Checks['format'], requestId: string) {
  const details = shownOf(
    typeof authorization === 'string' ? authorization : (authorization?.[0] ?? ''),
    format,
  )
  return { ...askedOf(request, format), requestId, details: 'key_prefix' in details ? details : null }
}

function passed(counted: Counted): Passed {
  return {
    ok: true,
    caller: callerOf(counted),
    limit: counted.caller.rateLimitRpm,
    remaining: remainingOf(counted),
    resetAtS: counted.resetAtS,
    headers: rateHeadersOf(counted),
  }
}
