/** One instance: the stores behind the plugins and routes, with what runs beside requests. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { responseDue } from '../../plugins/http-framing.ts'
import type { Config } from '../config.ts'
import { createGate } from '../guard/gate.ts'
import { createKeyCache } from '../guard/key-cache.ts'
import { createLastUsed, type LastUsed } from '../guard/last-used.ts'
import { createRefusals } from '../guard/refusals.ts'
import { createRehashes } from '../guard/rehashes.ts'
import { createApp } from '../http/app.ts'
import { createDrain } from '../http/drain.ts'
import { createErrorLog, type ErrorLog } from '../http/error-log.ts'
import { actorOf, pathOf } from '../http/routes/actor.ts'
import type { OpenOptions } from '../wiring/options.ts'
import { openStores, type Stores } from '../wiring/stores.ts'
import type { Log } from './log.ts'
import { startMaintenance } from './maintenance.ts'
import { createMetrics, type Metrics, watchGauges } from './metrics.ts'

export interface Service {
  app: FastifyInstance
  stores: Stores
  metrics: Metrics
  lastUsed: LastUsed
  /** Logs a request that failed. */
  onError: ErrorLog
  /** What the readiness probe says about the servers behind. */
  health(): { redis: string; redis_cause?: string; postgres: string }
  /**
   * Answers what is in flight, writes what is queued, and disconnects from the servers. Before that
   * it accepts requests for another `drainMs`, and each response ends its connection.
   */
  close(drainMs?: number): Promise<void>
}

const cacheEntriesMax = 200_000
const auditTimeoutMs = 1200
const lookupTimeoutMs = 1000
const loggedPathMax = 200

export async function openService(
  config: Config,
  log: Log,
  options: Omit<OpenOptions, 'onOutage' | 'onBatch' | 'onShed'>,
): Promise<Service> {
  const { patience = 1 } = options
  const metrics = createMetrics()
  // While the stores open, Redis may come back too: there is no gate yet, and no cached key.
  let invalidateCache = () => {}
  const stores = await openStores(config, {
    ...options,
    onOutage(outage) {
      if (outage !== null) return log.warn(outage, 'Redis is down: this instance counts locally')
      invalidateCache()
      log.info('counting in Redis again')
    },
    onBatch: (hits) => metrics.batch('counter', hits),
    onShed: metrics.shed,
  })
  const { keys, audit, counter, hasher, tokenFormat, cachePolicy } = stores

  const lastUsed = createLastUsed({
    keys,
    onBatch: (size) => metrics.batch('last_used', size),
    onMode: (written, reason) =>
      written
        ? log.info('last uses are written again')
        : log.warn({ reason }, 'last uses are not written; will be tried again'),
  })
  const rehashes = createRehashes({
    keys,
    secretId: hasher.secretId,
    onBatch: (size) => metrics.batch('rehash', size),
  })
  const cache = createKeyCache(cacheEntriesMax)
  const gate = createGate({
    keys,
    counter,
    cache,
    hasher,
    ...cachePolicy,
    onUse: lastUsed.note,
    onStaleHash: rehashes.add,
    onLookupBatch: (size) => metrics.batch('lookups', size),
    onShed: metrics.shed,
    lookupTimeoutMs: lookupTimeoutMs * patience,
  })
  invalidateCache = gate.invalidateBefore
  const refusals = createRefusals({
    audit,
    perAddressRpm: config.refusalsPerAddressRpm,
    timeoutMs: auditTimeoutMs * patience,
    onBatch: (size) => metrics.batch('audit', size),
    onShed: () => metrics.shed('audit'),
    onCommitted: metrics.auditCommitted,
    onOverBudget: metrics.refusedOverBudget,
  })
  watchGauges(metrics.registry, { counter, cache, gate })

  const logged = (request: FastifyRequest) => ({
    method: request.method,
    path: pathOf(request, tokenFormat).slice(0, loggedPathMax),
  })
  const onError = createErrorLog(log, logged)
  const app = createApp({
    config,
    verify: gate.verify,
    hit: gate.hit,
    async record({ reason, keyId = null, userId = null }, request) {
      await refusals.record({ ...actorOf(request, tokenFormat), reason, keyId, userId })
      metrics.refused(reason)
    },
    keys,
    lastUsed,
    tokenFormat,
    mintKey: stores.mintKey,
    onAnswer: metrics.answered,
    onError,
    ...(log.isLevelEnabled('debug') && {
      onRequest(request: FastifyRequest, status: number, ms: number) {
        log.debug(
          { request_id: request.id, status, ms: Math.round(ms * 1000) / 1000, ...logged(request) },
          'answered',
        )
      },
    }),
  })
  const drain = createDrain(app.server, responseDue)
  const stopMaintenance = await startMaintenance(stores, log)

  return {
    app,
    stores,
    metrics,
    lastUsed,
    onError,
    health() {
      const [outage] = counter.outages
      return {
        redis: counter.mode,
        ...(outage && { redis_cause: outage.cause }),
        postgres: gate.postgresDown ? 'away' : 'ok',
      }
    },
    async close(drainMs = 0) {
      drain.start()
      if (drainMs > 0) await sleep(drainMs)
      stopMaintenance()
      await drain.finish()
      await app.close()
      await gate.drained()
      await refusals.drained()
      await rehashes.drained()
      await lastUsed.close().catch(() => {})
      await stores.close()
    },
  }
}
