/** The connections to Postgres, one pool for each purpose. */
import { createPool, type Pool } from '../postgres/pool.ts'
import type { Database } from './database.ts'
import type { OpenOptions } from './options.ts'

/**
 * Connections at most, and the time from asking to the answer. Separate pools, so that a slow list
 * cannot hold up authentication, nor a flood of refusals a list.
 */
export const poolBounds = {
  lookups: { max: 2, timeoutMs: 1000 },
  management: { max: 4, timeoutMs: 1100 },
  audit: { max: 2, timeoutMs: 1200 },
  background: { max: 1, timeoutMs: 5000 },
  /** Apart from the slow work in the background: an instance that is late looks dead. */
  instances: { max: 1, timeoutMs: 1000 },
  /** Connects when there is something to store: in time for several tries before counters expire. */
  usage: { max: 1, timeoutMs: 10_000 },
  /** Rolling up an hour of many keys takes seconds. */
  rollups: { max: 1, timeoutMs: 60_000 },
  /** Connects for a command, where a person is waiting, and for changes to all keys of a user. */
  operator: { max: 1, timeoutMs: 30_000 },
} as const

type Purpose = keyof typeof poolBounds

export interface Pools extends Record<Purpose, Pool> {
  close(): Promise<void>
}

/** A server under load may take longer to connect than the deadline of a request. */
const connectAttempts = 5

async function connect(pool: Pool): Promise<void> {
  for (let left = connectAttempts; ; left--) {
    try {
      return void (await pool.run((sql) => sql`select 1`))
    } catch (error) {
      if (left === 1) throw error
    }
  }
}

/** Their batches queue before they ask for a connection, so src/process/guarding.ts measures the wait. */
const batched: Purpose[] = ['lookups', 'audit']
/** What a command connects at its start. Its other pools connect when they are first used. */
const commandPurposes: Purpose[] = ['operator']
const servicePurposes: Purpose[] = ['management', 'lookups', 'audit', 'background', 'instances']

/**
 * Rejects if the pools that will surely be used cannot connect, for example because a pooler refuses
 * our settings.
 */
export async function openPools({ url, ssl }: Database, options: OpenOptions): Promise<Pools> {
  const { onShed, onPostgresWait, onPostgresCall, onNoPartition, patience = 1 } = options
  const pool = (purpose: Purpose) => {
    const { max, timeoutMs } = poolBounds[purpose]
    return createPool({
      url,
      ssl,
      purpose,
      max,
      timeoutMs: timeoutMs * patience,
      onShed: () => onShed?.(`postgres_${purpose}`),
      onWait: batched.includes(purpose) ? undefined : (seconds) => onPostgresWait?.(purpose, seconds),
      onCall: (seconds) => onPostgresCall?.(purpose, seconds),
      onNoPartition: () => onNoPartition?.(),
    })
  }
  const pools = {
    lookups: pool('lookups'),
    management: pool('management'),
    audit: pool('audit'),
    background: pool('background'),
    instances: pool('instances'),
    usage: pool('usage'),
    rollups: pool('rollups'),
    operator: pool('operator'),
  }
  const close = async () => {
    // All at once: each may wait a second for a server that does not answer.
    await Promise.all(Object.values(pools).map((pool) => pool.close()))
  }
  try {
    const purposes = options.role === 'command' ? commandPurposes : servicePurposes
    await Promise.all(purposes.map((purpose) => connect(pools[purpose])))
  } catch (error) {
    await close()
    throw error
  }
  return { ...pools, close }
}
