/** Authenticates and counts requests of an application: what the plugin and the guard share. */
import { type ApiError, renderEnvelope } from '../../plugins/api-error.ts'
import { type Answer, type Counted, type Denied, remainingOf } from '../../plugins/verdict.ts'
import type { Config } from '../config.ts'
import { createErrorLog } from '../http/error-log.ts'
import { type Guarding, type GuardingOptions, openGuarding } from '../process/guarding.ts'
import type { Lines } from '../process/log.ts'
import type { RefusalRecord } from '../stores.ts'
import { type Check, checkWith } from './check.ts'
import { startError } from './options.ts'

export interface Checks extends Pick<Guarding, 'close'> {
  /** How each token begins. */
  start: string
  format: Guarding['stores']['tokenFormat']
  check: Check
  record(refused: Omit<RefusalRecord, 'reason' | 'keyId' | 'userId'>, denied: Denied): Promise<void>
  /** The whole answer to a request that may not pass. */
  answer(error: ApiError, counted: Counted | undefined, requestId: string): Answer
  /** In the Prometheus text format. */
  metrics(): Promise<string>
}

/** Fastify gives a plugin 10 s to start, unless configured otherwise. */
const databaseWaitMsMax = 4000
/** Where each code is explained if there is no service that does. */
const docsBase = 'https://github.com/latchkey/latchkey/blob/main/docs/package.md#'

/** `signal`: stops waiting for another process that migrates the database. */
export async function openChecks(
  config: Config,
  given: Lines,
  {
    patience = 1,
    signal,
    databaseWaitMs = Infinity,
  }: Pick<GuardingOptions, 'patience' | 'signal' | 'databaseWaitMs'>,
): Promise<Checks> {
  const log = harmless(given)
  const { verify, hit, record, stores, metrics, close } = await openGuarding(config, log, {
    role: 'serve',
    databaseWaitMs: Math.min(databaseWaitMs, databaseWaitMsMax),
    patience,
    signal,
    onProgress: (line) => log.info(line),
  }).catch((error) => {
    throw startError(error)
  })
  const start = `${stores.tokenFormat.prefix}_`
  const docs = config.baseUrl === null ? docsBase : `${config.baseUrl}/docs/errors/`
  const report = createErrorLog(log, () => ({}))

  return {
    start,
    format: stores.tokenFormat,
    check: checkWith({ verify, hit }, start),
    record: (refused, { reason, keyId = null, userId = null }) =>
      record({ ...refused, reason, keyId, userId }),
    answer(error, counted, requestId) {
      metrics.answered(error.statusCode)
      report(error, null, requestId)
      return {
        status: error.statusCode as Answer['status'],
        headers: {
          'content-type': 'application/json; charset=utf-8',
          'cache-control': 'no-store',
          'x-content-type-options': 'nosniff',
          'x-request-id': requestId,
          ...(counted && rateHeadersOf(counted)),
          ...error.headers,
        },
        body: renderEnvelope(error, requestId, docs),
      }
    },
    metrics: () => metrics.registry.metrics(),
    close,
  }
}

/** The application's log, as one that never throws: that would keep requests from their answers. */
function harmless(log: Lines): Lines {
  const writer =
    (level: 'debug' | 'info' | 'warn' | 'error') =>
    (...line: [fields: object | string, message?: string]) => {
      try {
        log[level](...line)
      } catch {}
    }
  return {
    debug: writer('debug'),
    info: writer('info'),
    warn: writer('warn'),
    error: writer('error'),
    isLevelEnabled: (level) => log.isLevelEnabled?.(level) !== false,
  }
}

/** On every response to a request that was counted. */
export const rateHeadersOf = (counted: Counted): Record<string, string> => ({
  'x-ratelimit-limit': String(counted.caller.rateLimitRpm),
  'x-ratelimit-remaining': String(remainingOf(counted)),
  'x-ratelimit-reset': String(counted.resetAtS),
})

/** What an application may know of its caller: the cached key has more. */
export const callerOf = ({ caller: { id, userId, rateLimitRpm, expiresAt } }: Counted) => ({
  id,
  userId,
  rateLimitRpm,
  expiresAt,
})
