/** One instance: the stores behind the plugins and routes, with what runs beside requests. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type ApiError, unavailable } from '../../plugins/api-error.ts'
import type { Denied } from '../../plugins/authenticate.ts'
import type { Config } from '../config.ts'
import { createBatcher } from '../guard/batcher.ts'
import { createGate } from '../guard/gate.ts'
import { createKeyCache } from '../guard/key-cache.ts'
import { createLastUsed } from '../guard/last-used.ts'
import { createRefusalBudget, RefusalBudgetSpent } from '../guard/refusal-budget.ts'
import { createApp } from '../http/app.ts'
import { createDrain } from '../http/drain.ts'
import { createErrorLog } from '../http/error-log.ts'
import { actorOf, pathOf } from '../http/routes/actor.ts'
import { hashSecretId } from '../rules/token.ts'
import type { RefusalRecord, Rehash } from '../stores.ts'
import type { Log } from './log.ts'
import { createMetrics, type Metrics } from './metrics.ts'
import { type OpenOptions, openStores, type Stores } from './wiring.ts'

export interface Service {
  app: FastifyInstance
  stores: Stores
  metrics: Metrics
  /** What the readiness probe tells of the servers behind. */
  health(): { redis: string; redis_cause?: string; postgres: string }
  /**
   * Answers what is under way, writes what is queued, and lets go of the servers. Before that it goes on taking requests for
   * `drainMs`, and each answer ends its connection.
   */
  close(drainMs?: number): Promise<void>
}

const cacheEntriesMax = 200_000
const auditBatchMax = 1000
const auditQueueMax = 10_000
const auditTimeoutMs = 1200
const lookupTimeoutMs = 1000
const rehashBatchMax = 500
const rehashQueueMax = 10_000
const rehashTimeoutMs = 5000
const maintainEveryMs = 3_600_000

export async function openService(
  config: Config,
  log: Log,
  options: Omit<OpenOptions, 'onOutage' | 'onBatch' | 'onShed'>,
): Promise<Service> {
  const { patience = 1 } = options
  // Redis may come while the stores are opened: there is no cached key yet, and no gate.
  let invalidateCache = () => {}
  const stores = await openStores(config, {
    ...options,
    onOutage(outage) {
      if (outage !== null) return log.warn(outage, 'Redis is away: this instance counts by itself')
      invalidateCache()
      log.info('counting in Redis again')
    },
    onBatch: (hits) => metrics.batch('counter', hits),
    onShed: (queue) => metrics.shed(queue),
  })
  const { keys, audit, counter, hashSecret, cacheTtlMs, degradedCacheTtlMs } = stores
  const { tokenPrefix } = config
  const secretId = hashSecretId(hashSecret)

  const cache = createKeyCache(cacheEntriesMax)
  const metrics = createMetrics({
    redisDegraded: () => counter.mode === 'local',
    redisCauses: () => counter.outages.map(({ cause }) => cause),
    postgresDegraded: () => gate.postgresDown,
    cachedKeys: () => cache.size,
  })
  const lastUsed = createLastUsed({
    keys,
    onBatch: (size) => metrics.batch('last_used', size),
    onMode: (written, reason) =>
      written
        ? log.info('last uses are written again')
        : log.warn({ reason }, 'last uses are not written; will be tried again'),
  })
  const gate = createGate({
    keys,
    counter,
    cache,
    hashSecret,
    hashSecretPrevious: config.hashSecretPrevious,
    cacheTtlMs,
    unconfirmedTtlMs: degradedCacheTtlMs,
    onUse: lastUsed.note,
    // What is not written is reported again when the key is next read.
    onStaleHash: (rehash) => void rehashes.add(rehash).catch(() => {}),
    onLookupBatch: (size) => metrics.batch('lookups', size),
    onShed: metrics.shed,
    lookupTimeoutMs: lookupTimeoutMs * patience,
  })
  invalidateCache = gate.invalidateBefore
  const rehashes = createBatcher<Rehash, undefined>({
    batchMax: rehashBatchMax,
    inFlightMax: 1,
    queueMax: rehashQueueMax,
    timeoutMs: rehashTimeoutMs,
    onBatch: (size) => metrics.batch('rehash', size),
    async run(batch) {
      await keys.rehash(batch, secretId)
      return batch.map(() => undefined)
    },
  })
  const refusals = createBatcher<RefusalRecord, undefined>({
    batchMax: auditBatchMax,
    inFlightMax: 2,
    queueMax: auditQueueMax,
    timeoutMs: auditTimeoutMs * patience,
    onBatch: (size) => metrics.batch('audit', size),
    onShed: () => metrics.shed('audit'),
    async run(batch) {
      const startMs = performance.now()
      await audit.recordRefusals(batch)
      metrics.auditCommitted((performance.now() - startMs) / 1000)
      return batch.map(() => undefined)
    },
  })

  const budget = createRefusalBudget({ perMinute: config.refusalsPerAddressRpm })
  const seen = (request: FastifyRequest) => ({
    method: request.method,
    path: pathOf(request, tokenPrefix).slice(0, 200),
  })
  const logError = createErrorLog(log, seen)
  const app = createApp({
    config,
    verify: gate.verify,
    hit: gate.hit,
    keys,
    lastUsed,
    hashSecret,
    onAnswer: metrics.answered,
    async record({ reason, keyId, userId }: Denied, request: FastifyRequest) {
      const actor = actorOf(request, tokenPrefix)
      const retryAfterS = budget.take(actor.ip)
      if (retryAfterS > 0) {
        metrics.refusedOverBudget()
        throw unavailable(new RefusalBudgetSpent('too many refusals from one address'), retryAfterS)
      }
      await refusals.add({
        ...actor,
        reason,
        keyId: keyId ?? null,
        userId: userId ?? null,
      })
      metrics.refused(reason)
    },
    onError(error: ApiError, request: FastifyRequest | null, requestId: string) {
      metrics.answered(error.statusCode)
      logError(error, request, requestId)
    },
    ...(log.isLevelEnabled('debug') && {
      onRequest(request: FastifyRequest, status: number, ms: number) {
        log.debug(
          { request_id: request.id, status, ms: Math.round(ms * 1000) / 1000, ...seen(request) },
          'answered',
        )
      },
    }),
  })
  const drain = createDrain(app.server)
  const maintain = () =>
    stores.maintain().then(
      (dropped) => {
        if (dropped.length > 0)
          log.info({ partitions: dropped }, 'audit partitions past their retention dropped')
      },
      (error) => log.error({ err: error }, 'audit partitions could not be looked after; will be tried again'),
    )
  const maintenance = setInterval(maintain, maintainEveryMs)
  maintenance.unref()
  await maintain()

  return {
    app,
    stores,
    metrics,
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
      clearInterval(maintenance)
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
