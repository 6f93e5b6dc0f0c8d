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

/**
 * With an embedded Postgres. Short, because a command waits this long for the service to see its
 * change if it was not given the service's REDIS_URL.
 */
const aloneCacheTtlMs = 1000

/**
 * `embedded`: the database is our own, so there is one service at most. `inMemory`: this process
 * has no REDIS_URL.
 */
export function cachePolicy(
  { keyCacheSeconds, outageCacheSeconds }: Pick<Config, 'keyCacheSeconds' | 'outageCacheSeconds'>,
  { embedded, inMemory }: { embedded: boolean; inMemory: boolean },
): CachePolicy {
  const wantedTtlMs = keyCacheSeconds * 1000
  // Other instances may share a given database, and without Redis nothing would tell us of their
  // changes.
  if (!embedded)
    return {
      cacheTtlMs: wantedTtlMs,
      degradedCacheTtlMs: 0,
      maxStaleMs: wantedTtlMs,
      outageTtlMs: outageCacheSeconds * 1000,
    }
  const cacheTtlMs = Math.min(aloneCacheTtlMs, wantedTtlMs)
  return {
    cacheTtlMs,
    degradedCacheTtlMs: inMemory ? cacheTtlMs : 0,
    maxStaleMs: aloneCacheTtlMs,
    outageTtlMs: 0,
  }
}
