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
  /** Connects only when the command line asks: a person waits, and a user may have many keys. */
  operator: { max: 1, timeoutMs: 30_000 },
} as const

export type Purpose = keyof typeof poolBounds

export interface Pools extends Record<Purpose, Pool> {
  close(): Promise<void>
}

/**
 * Rejects if the pools of a service cannot connect, for example because a pooler refuses our
 * settings.
 */
export async function openPools({ url, ssl }: Database, options: OpenOptions): Promise<Pools> {
  const { onShed, patience = 1 } = options
  const pool = (purpose: Purpose) => {
    const { max, timeoutMs } = poolBounds[purpose]
    return createPool({
      url,
      ssl,
      purpose,
      max,
      timeoutMs: timeoutMs * patience,
      onShed: () => onShed?.(`postgres_${purpose}`),
    })
  }
  const pools = {
    lookups: pool('lookups'),
    management: pool('management'),
    audit: pool('audit'),
    background: pool('background'),
    operator: pool('operator'),
  }
  const close = async () => {
    // All at once: each may wait a second for a server that does not answer.
    await Promise.all(Object.values(pools).map((pool) => pool.close()))
  }
  const { operator: _, ...connected } = pools
  try {
    await Promise.all(Object.values(connected).map((pool) => pool.run((sql) => sql`select 1`)))
  } catch (error) {
    await close()
    throw error
  }
  return { ...pools, close }
}
