/**
 * Which store is which: this folder is the one place that knows the concrete ones. With
 * DATABASE_URL and REDIS_URL it uses those servers and starts nothing; without, a Postgres of its
 * own and counting in memory.
 */
import type { Config } from '../config.ts'
import { createPublish } from '../guard/publish.ts'
import { createAuditLog } from '../postgres/audit.ts'
import { createKeyStore } from '../postgres/keys.ts'
import { dropPartitionsOlderThan, ensurePartitions } from '../postgres/partitions.ts'
import { createUserStore } from '../postgres/users.ts'
import type { KeyHasher } from '../rules/key-hasher.ts'
import { keyMinter, type MintKey } from '../rules/new-key.ts'
import { type TokenFormat, tokenFormat } from '../rules/token.ts'
import type { AuditLog, Counter, KeyStore, UserStore } from '../stores.ts'
import { type CachePolicy, cachePolicy } from './cache-policy.ts'
import { openCounter } from './counter.ts'
import { type Database, openDatabase } from './database.ts'
import { openHasher } from './hasher.ts'
import type { OpenOptions } from './options.ts'
import { openPools } from './pools.ts'

export interface Stores extends Pick<Database, 'embedded' | 'applied'> {
  keys: KeyStore
  users: UserStore
  audit: AuditLog
  counter: Counter
  tokenFormat: TokenFormat
  hasher: KeyHasher
  mintKey: MintKey
  cachePolicy: CachePolicy
  /**
   * Makes the coming partitions for refusals and drops those past AUDIT_RETENTION_DAYS. Returns the
   * names dropped.
   */
  maintain(): Promise<string[]>
  close(): Promise<void>
}

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
  try {
    const database = await open(openDatabase(config, options))
    const isEmbedded = database.embedded !== null
    const pools = await open(openPools(database, options))
    const format = tokenFormat(config.tokenPrefix)
    const hasher = await openHasher(config, database, options)
    const counter = await open(openCounter(config, options, isEmbedded && options.role === 'serve'))
    const policy = cachePolicy(config.keyCacheSeconds, {
      embedded: isEmbedded,
      inMemory: counter.mode === 'memory',
    })
    const publish = createPublish({ counter, maxStaleMs: policy.maxStaleMs })
    // The admin API answers in the time of a request; at the command line, a person waits.
    const operatorPool = options.role === 'command' ? pools.operator : pools.management
    return {
      keys: createKeyStore(pools, { keysPerUserMax: config.maxKeysPerUser, publish }),
      users: createUserStore(operatorPool, publish),
      audit: createAuditLog({ audit: pools.audit, operator: operatorPool }),
      counter,
      hasher,
      tokenFormat: format,
      mintKey: keyMinter(format, hasher),
      cachePolicy: policy,
      embedded: database.embedded,
      applied: database.applied,
      async maintain() {
        // In two steps: a partition that cannot be dropped now must not keep the coming ones from
        // being made.
        await pools.background.run(ensurePartitions)
        return pools.background.run((sql) => dropPartitionsOlderThan(sql, config.auditRetentionDays))
      },
      close,
    }
  } catch (error) {
    await close().catch(() => {})
    throw error
  }
}
