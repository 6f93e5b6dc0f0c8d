/** One instance of the service: the public listener in front of what guards its requests. */
import { setTimeout as pause } from 'node:timers/promises'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { responseDue } from '../../plugins/http-framing.ts'
import type { Config } from '../config.ts'
import { createApp } from '../http/app.ts'
import { createDrain } from '../http/drain.ts'
import { createErrorLog, type ErrorLog } from '../http/error-log.ts'
import { pathOf, refusedRequest } from '../http/routes/actor.ts'
import { type Guarding, type GuardingOptions, openGuarding } from './guarding.ts'
import type { Log } from './log.ts'

export interface Service extends Omit<Guarding, 'verify' | 'hit' | 'record' | 'close'> {
  app: FastifyInstance
  /** Logs a request that failed. */
  onError: ErrorLog
  /**
   * Answers what is in flight, writes what is queued, and disconnects from the servers. Before that
   * it accepts requests for another `drainMs`, and each response ends its connection.
   */
  close(options?: CloseOptions): Promise<void>
}

export interface CloseOptions {
  drainMs?: number
  /** Ends what is still in flight. */
  cutOff?: AbortSignal
  /** Runs once the public listener has closed: until then the probes say that it is draining. */
  closeOps?: () => Promise<void>
}

const loggedPathMax = 200

export async function openService(config: Config, log: Log, options: GuardingOptions): Promise<Service> {
  const { verify, hit, record, ...guarding } = await openGuarding(config, log, options)
  const { stores, metrics, lastUsed } = guarding
  const { tokenFormat } = stores

  const logged = (request: FastifyRequest) => ({
    method: request.method,
    path: pathOf(request, tokenFormat).slice(0, loggedPathMax),
  })
  const onError = createErrorLog(log, logged)
  const app = createApp({
    config,
    verify,
    hit,
    record: ({ reason, keyId = null, userId = null }, request) =>
      record({ ...refusedRequest(request, tokenFormat), reason, keyId, userId }),
    keys: stores.keys,
    usageHistory: stores.usageHistory,
    lastUsed,
    tokenFormat,
    mintKey: stores.mintKey,
    onAnswer: metrics.answered,
    onError,
    ...(log.isLevelEnabled('debug') && {
      onResponse(request: FastifyRequest, status: number, ms: number) {
        log.debug(
          { request_id: request.id, status, ms: Math.round(ms * 1000) / 1000, ...logged(request) },
          'answered',
        )
      },
    }),
  })
  const drain = createDrain(app.server, responseDue)

  return {
    ...guarding,
    app,
    onError,
    async close({ drainMs = 0, cutOff, closeOps } = {}) {
      drain.start()
      if (drainMs > 0) await pause(drainMs)
      await drain.finish(cutOff)
      await app.close()
      await closeOps?.()
      await guarding.close()
    },
  }
}
