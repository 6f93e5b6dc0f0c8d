/** How long instances trust a cached key, and so how long a change may have to wait. */
import type { Config } from '../config.ts'

export interface CachePolicy {
  /** While the shared counter confirms its version, milliseconds. */
  readonly cacheTtlMs: number
  /** While no shared counter does; 0: not at all. */
  readonly degradedCacheTtlMs: number
  /**
   * The oldest copy that any instance trusts: a change that Redis does not confirm waits this long.
   */
  readonly maxStaleMs: number
  /** While Postgres is down and the shared counter confirms it. */
  readonly outageTtlMs: number
}

/** Without a shared counter the command line waits this long for the service, so it is short. */
const aloneCacheTtlMs = 1000

/**
 * `embedded`: the database is our own, so there is one service at most. `inMemory`: this process
 * has no REDIS_URL.
 */
export function cachePolicy(
  { keyCacheSeconds, outageCacheSeconds }: Pick<Config, 'keyCacheSeconds' | 'outageCacheSeconds'>,
  { embedded, inMemory }: { embedded: boolean; inMemory: boolean },
): CachePolicy {
  const cacheTtlMs = keyCacheSeconds * 1000
  const outageTtlMs = outageCacheSeconds * 1000
  // Other instances may share a given database, and without Redis nothing would tell us of their
  // changes.
  if (!embedded || !inMemory)
    return { cacheTtlMs, degradedCacheTtlMs: 0, maxStaleMs: cacheTtlMs, outageTtlMs }
  return {
    cacheTtlMs,
    degradedCacheTtlMs: Math.min(aloneCacheTtlMs, cacheTtlMs),
    maxStaleMs: aloneCacheTtlMs,
    outageTtlMs,
  }
}
