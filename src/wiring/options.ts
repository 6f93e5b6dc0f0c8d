/** What a caller of openStores may ask for. Each part of the wiring picks what it needs. */
import type { Cluster, Redis } from 'ioredis'
import type { RedisCounterOptions } from '../redis/counter.ts'

export interface OpenOptions {
  /** serve: the one service of an embedded database; command: anything beside it. */
  role: 'serve' | 'command'
  /** A command may create the embedded database; most only make sense on one that exists. */
  createsDatabase?: boolean
  /**
   * The command mints keys, as `serve` may too: refused under a HASH_SECRET that fits none of the
   * existing keys.
   */
  mintsKeys?: boolean
  onProgress?: (line: string) => void
  /** Stops waiting for a database that is not there yet. */
  signal?: AbortSignal
  onOutage?: RedisCounterOptions['onOutage']
  onBatch?: RedisCounterOptions['onBatch']
  /** A queue was full, and a request was answered 503. */
  onShed?: (queue: string) => void
  /** A connection to count on in place of REDIS_URL's. */
  redis?: Redis | Cluster
  /**
   * How many times longer than usual to wait for Redis and Postgres. Tests of anything else must
   * not fail on a busy machine.
   */
  patience?: number
}
