/**
 * What a process needs to guard requests: it authenticates, counts, caches and audits on the stores,
 * with what runs beside requests. The service, the plugin and the guard are built on it.
 */
import type { CountingMode, OutageCause, PostgresState } from '../../schemas/health.ts'
import type { Config } from '../config.ts'
import { createGate, type Gate } from '../guard/gate.ts'
import { createKeyCache } from '../guard/key-cache.ts'
import { createLastUsed, type LastUsed } from '../guard/last-used.ts'
import { createOldCopies } from '../guard/old-copies.ts'
import { createRefusals } from '../guard/refusals.ts'
import { createRehashes } from '../guard/rehashes.ts'
import { createUnchanged } from '../guard/unchanged.ts'
import { newId } from '../rules/id.ts'
import type { InstanceReport, RefusalRecord } from '../stores.ts'
import { createCollector } from '../usage/collector.ts'
import { version } from '../version.ts'
import type { OpenOptions } from '../wiring/options.ts'
import { poolBounds } from '../wiring/pools.ts'
import { openStores, type Stores } from '../wiring/stores.ts'
import { watchGauges } from './gauges.ts'
import { createHeartbeat, type HeartbeatOptions } from './heartbeat.ts'
import type { Lines } from './log.ts'
import { startMaintenance } from './maintenance.ts'
import { createMetrics, type Metrics } from './metrics.ts'

export interface Guarding extends Pick<Gate, 'verify' | 'hit'> {
  stores: Stores
  metrics: Metrics
  lastUsed: LastUsed
  /** Resolves once the refusal is committed. Rejects with a 503 if it cannot be. */
  record(refusal: RefusalRecord): Promise<void>
  /** This instance, as it reports itself to the others. */
  instance(): InstanceReport
  /** What the readiness probe says about the servers behind. */
  health(): { redis: CountingMode; redis_cause?: OutageCause; postgres: PostgresState }
  /** Writes what is queued, and disconnects from the servers. No request may be under way. */
  close(): Promise<void>
}

export type GuardingOptions = Pick<
  OpenOptions,
  'role' | 'signal' | 'onProgress' | 'databaseWaitMs' | 'redis' | 'patience'
>

const cacheEntriesMax = 200_000

/** What the parts of one process share. */
interface Shared {
  stores: Stores
  metrics: Metrics
  log: Lines
}

export async function openGuarding(config: Config, log: Lines, options: GuardingOptions): Promise<Guarding> {
  const metrics = createMetrics()
  // May be called while the stores are still opening: there is no gate yet, and no cached key.
  let invalidateCopies = () => {}
  let createPartitions = () => {}
  const stores = await openStores(config, {
    ...options,
    onOutage(outage) {
      if (outage === null) return log.info('counting in Redis again')
      metrics.redisOutage()
      log.warn(outage, 'Redis is down: this instance counts locally')
    },
    onOtherServer: () => invalidateCopies(),
    onBatch: (hits) => metrics.batch('counter', hits),
    onShed: metrics.shed,
    onRedisCall: metrics.redisCall,
    onScanned: metrics.countersScanned,
    onPostgresWait: metrics.postgresWait,
    onPostgresCall: metrics.postgresCall,
    onNoPartition: () => createPartitions(),
    onPublished: metrics.published,
  })
  const { counter } = stores
  const shared = { stores, metrics, log }
  const guard = createRequestGuard(config, shared, options.patience ?? 1)
  const { gate, cache, oldCopies } = guard
  invalidateCopies = () => {
    gate.invalidateBefore()
    oldCopies.startOver()
  }
  /** Without callers, only reports show that Postgres is down; and only they show that it takes no writes. */
  const postgresDown = () => gate.postgresDown || heartbeat.failing
  const postgres = (): PostgresState => (postgresDown() ? 'down' : 'ok')

  const collector = openCollector(shared)
  watchGauges(metrics.registry, { counter, cache, gate, postgresDown, collector })
  const { instance, heartbeat } = openHeartbeat(shared, guard, postgres)
  const [maintenance] = await Promise.all([
    startMaintenance(stores, log),
    collector.start(),
    heartbeat.start(),
  ])
  createPartitions = maintenance.createPartitions

  return {
    stores,
    metrics,
    lastUsed: guard.lastUsed,
    verify: gate.verify,
    hit: gate.hit,
    record: guard.record,
    instance,
    health() {
      const [outage] = counter.outages()
      return { redis: counter.mode(), ...(outage && { redis_cause: outage.cause }), postgres: postgres() }
    },
    async close() {
      maintenance.stop()
      await guard.close()
      // In parallel: the last use of a key whose row is locked waits for seconds.
      await Promise.all([guard.lastUsed.close().catch(() => {}), collector.close(), heartbeat.close()])
      await stores.close()
    },
  }
}

/** One line when something begins to fail, and one when it works again (null). */
const faultLog = (log: Lines, fails: string, works: string) => (error: Error | null) =>
  error === null ? log.info(works) : log.warn({ reason: error.message }, fails)

/** The gate that decides requests, and the work that it leaves for the background. */
function createRequestGuard(config: Config, { stores, metrics, log }: Shared, patience: number) {
  const { keys, audit, counter, hasher, cachePolicy } = stores
  const lastUsed = createLastUsed({
    keys,
    onBatch: (size) => metrics.batch('last_used', size),
    onFault: faultLog(log, 'last uses are not written; will be tried again', 'last uses are written again'),
  })
  const rehashes = createRehashes({
    keys,
    secretId: hasher.secretId,
    onBatch: (size) => metrics.batch('rehash', size),
  })
  const refusals = createRefusals({
    audit,
    perAddressRpm: config.refusalsPerAddressRpm,
    timeoutMs: poolBounds.audit.timeoutMs * patience,
    onBatch: (size) => metrics.batch('audit', size),
    onWait: (seconds) => metrics.postgresWait('audit', seconds),
    onShed: () => metrics.shed('audit'),
    onCommit: metrics.auditCommit,
    onOverBudget: metrics.refusedOverBudget,
  })
  const cache = createKeyCache(cacheEntriesMax)
  const oldCopies = createOldCopies(cachePolicy.outageTtlMs)
  const unchanged = createUnchanged()
  const gate = createGate({
    keys,
    counter,
    cache,
    hasher,
    ...cachePolicy,
    oldCopies: oldCopies.allowed,
    unchanged,
    onUse: lastUsed.note,
    onStaleHash: rehashes.add,
    onLookupBatch: (size) => metrics.batch('lookups', size),
    onLookupWait: (seconds) => metrics.postgresWait('lookups', seconds),
    onShed: metrics.shed,
    lookupTimeoutMs: poolBounds.lookups.timeoutMs * patience,
  })

  return {
    gate,
    cache,
    oldCopies,
    unchanged,
    lastUsed,
    async record(refusal: RefusalRecord) {
      await refusals.record(refusal)
      metrics.refused(refusal.reason)
    },
    async close() {
      await gate.close()
      await refusals.drained()
      await rehashes.drained()
    },
  }
}

const openCollector = ({ stores, metrics, log }: Shared) =>
  createCollector({
    counter: stores.counter,
    usage: stores.usage,
    onIncomplete(minute) {
      metrics.usageIncomplete()
      log.warn({ minute: startOf(minute) }, 'usage of this minute is incomplete')
    },
    onSkipped: (first, last) =>
      log.warn(
        { first: startOf(first), last: startOf(last) },
        'this instance has stored no usage of these minutes; without another one they are incomplete',
      ),
    onFault: faultLog(log, 'usage is not stored; will be tried again', 'usage is stored again'),
    onRollUpFault: faultLog(
      log,
      'hours and days of usage are not rolled up; will be tried again',
      'hours and days of usage are rolled up again',
    ),
  })

const startOf = (minute: number) => new Date(minute * 60_000).toISOString()

/** Reports this instance to the others. */
function openHeartbeat(
  { stores, metrics, log }: Shared,
  { oldCopies, unchanged }: Pick<HeartbeatOptions, 'oldCopies' | 'unchanged'>,
  postgres: () => PostgresState,
) {
  const id = newId('ins_')
  const startedMonoMs = performance.now()
  const instance = (): InstanceReport => ({
    id,
    version,
    uptimeS: (performance.now() - startedMonoMs) / 1000,
    counting: stores.counter.mode(),
    postgres: postgres(),
    traffic: metrics.traffic(),
  })
  const heartbeat = createHeartbeat({
    instances: stores.instances,
    oldCopies,
    unchanged,
    report: instance,
    onFault: faultLog(
      log,
      'this instance cannot report itself; will be tried again',
      'this instance reports itself again',
    ),
  })
  return { instance, heartbeat }
}
