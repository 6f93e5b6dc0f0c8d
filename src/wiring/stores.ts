/**
 * Which store is which: this folder is the one place that knows the concrete ones. With
 * DATABASE_URL and REDIS_URL it uses those servers and starts nothing; without, a Postgres of its
 * own and counting in memory.
 */
import type { Config } from '../config.ts'
import { createPublish } from '../guard/publish.ts'
import { createAuditLog } from '../postgres/audit.ts'
import { createInstanceStore, dropKeyChanges, dropSilentInstances } from '../postgres/instances.ts'
import { createKeyStore } from '../postgres/keys.ts'
import { dropAuditPartitions, dropUsagePartitions, ensurePartitions } from '../postgres/partitions.ts'
import { createUsageStore } from '../postgres/usage.ts'
import { createUserStore } from '../postgres/users.ts'
import type { KeyHasher } from '../rules/key-hasher.ts'
import { keyMinter, type MintKey } from '../rules/new-key.ts'
import { type TokenFormat, tokenFormat } from '../rules/token.ts'
import type { AuditLog, Counter, InstanceStore, KeyStore, UsageStore, UserStore } from '../stores.ts'
import { createUsageHistory, type UsageHistory } from '../usage/history.ts'
import { type CachePolicy, cachePolicy } from './cache-policy.ts'
import { openCounter } from './counter.ts'
import { type Database, openDatabase } from './database.ts'
import { openHasher } from './hasher.ts'
import type { OpenOptions } from './options.ts'
import { openPools, type Pools } from './pools.ts'

export interface Stores extends Pick<Database, 'embedded' | 'applied'> {
  keys: KeyStore
  users: UserStore
  audit: AuditLog
  usage: UsageStore
  usageHistory: UsageHistory
  instances: InstanceStore
  counter: Counter
  tokenFormat: TokenFormat
  hasher: KeyHasher
  mintKey: MintKey
  cachePolicy: CachePolicy
  /** Creates the partitions of today and of the coming days. */
  createPartitions(): Promise<void>
  /**
   * Creates upcoming partitions and drops those past AUDIT_RETENTION_DAYS or USAGE_RETENTION_DAYS;
   * `onDropped` gets their names, also if it rejects afterwards. Forgets silent instances.
   */
  maintain(onDropped: OnDropped): Promise<void>
  close(): Promise<void>
}

export type OnDropped = (partitions: string[]) => void

/** After this, the change is answered 503. Instances report once a second, so two reports fit. */
const requestFenceTimeoutMs = 4000
/** A command waits until a silent instance may use no copy any more. */
const commandFenceTimeoutMs = 5000

export async function openStores(config: Config, options: OpenOptions): Promise<Stores> {
  const opened: { close(): Promise<void> }[] = []
  const close = async () => {
    for (const one of opened.splice(0).reverse()) await one.close()
  }
  const open = async <T extends { close(): Promise<void> }>(opening: Promise<T>): Promise<T> => {
    const one = await opening
    opened.push(one)
    return one
  }
  const isEmbedded = config.databaseUrl === null
  const counting = open(openCounter(config, options, isEmbedded && options.role === 'serve'))
  // Awaited below. Until then, the database comes first.
  counting.catch(() => {})
  try {
    const database = await open(openDatabase(config, options))
    const [pools, hasher, counter] = await allSettled([
      open(openPools(database, options)),
      openHasher(config, database, options),
      counting,
    ])
    const format = tokenFormat(config.tokenPrefix, tokensOf(config))
    const policy = cachePolicy(config, {
      embedded: isEmbedded,
      inMemory: counter.mode() === 'memory',
    })
    const instances = createInstanceStore(pools, policy)
    const isAlone = isEmbedded && counter.mode() === 'memory'
    const isCommand = options.role === 'command'
    let isAnnounced = false
    const publish = createPublish({
      counter,
      maxStaleMs: policy.maxStaleMs,
      fences: isAlone ? null : instances.fences,
      fenceTimeoutMs: isCommand ? policy.outageTtlMs + commandFenceTimeoutMs : requestFenceTimeoutMs,
      onSlow: () => {
        // A scan may revoke hundreds of keys.
        if (isCommand && !isAnnounced)
          options.onProgress?.('The change is stored. Waiting until every instance sees it')
        isAnnounced = true
      },
      onPublished: options.onPublished,
    })
    // The admin API answers in the time of a request; at the command line, a person waits.
    const patientPools = isCommand ? { ...pools, management: pools.operator } : pools
    const usage = createUsageStore(patientPools)
    return {
      keys: createKeyStore(patientPools, { keysPerUserMax: config.maxKeysPerUser, publish }),
      users: createUserStore(patientPools, publish),
      audit: createAuditLog(patientPools),
      usage,
      usageHistory: createUsageHistory({ usage, counter }),
      instances,
      counter,
      hasher,
      tokenFormat: format,
      mintKey: keyMinter(format, hasher),
      cachePolicy: policy,
      embedded: database.embedded,
      applied: database.applied,
      createPartitions: () => pools.background.run(ensurePartitions),
      maintain: (onDropped) => maintain(pools, config, onDropped),
      close,
    }
  } catch (error) {
    await counting.catch(() => {})
    await close().catch(() => {})
    throw error
  }
}

/** Of operators, and of what reads the metrics. */
const tokensOf = ({ opsTokens, metricsToken }: Config) =>
  [...opsTokens.map(({ token }) => token), metricsToken].filter((token) => token !== null)

/** Rejects only when each has settled, so that the caller can close what did open. */
async function allSettled<T extends readonly unknown[]>(all: { [K in keyof T]: Promise<T[K]> }): Promise<T> {
  await Promise.allSettled(all)
  return (await Promise.all(all)) as unknown as T
}

async function maintain({ background, rollups }: Pools, config: Config, onDropped: OnDropped) {
  // In two steps: a partition that cannot be dropped now must not prevent upcoming ones from being
  // created.
  await background.run(ensurePartitions)
  await allSettled([
    dropAll(() => background.run((sql) => dropAuditPartitions(sql, config.auditRetentionDays)), onDropped),
    dropAll(() => rollups.run((sql) => dropUsagePartitions(sql, config.usageRetentionDays)), onDropped),
    background.run(dropSilentInstances),
    dropAllKeyChanges(rollups),
  ])
}

/** Not in the background pool, where last uses would wait for it. */
async function dropAllKeyChanges(rollups: Pools['rollups']) {
  while ((await rollups.run(dropKeyChanges)) > 0);
}

/** One call drops a bounded number of partitions, so calls until one drops none. */
async function dropAll(drop: () => Promise<string[]>, onDropped: OnDropped) {
  for (let dropped = await drop(); dropped.length > 0; dropped = await drop()) onDropped(dropped)
}
