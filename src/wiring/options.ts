/** What a caller of openStores may ask for. Each part of the wiring picks what it needs. */
import type { Cluster, Redis } from 'ioredis'
import type { Role } from '../embedded/lock.ts'
import type { RedisCounterOptions } from '../redis/counter.ts'

export interface OpenOptions {
  /** serve: the one service of an embedded database; command: anything beside it. */
  role: Role
  /** A command may create the embedded database; most only make sense on one that exists. */
  createsDatabase?: boolean
  /**
   * The command mints keys or finds them by their hash, as `serve` does: refused under a HASH_SECRET
   * that fits none of the existing keys.
   */
  needsHashSecret?: boolean
  /** The command finds keys by KEY_PREFIX: refused if none of the existing keys begins with it. */
  needsKeyPrefix?: boolean
  /** The command only reads in Postgres: it connects to no Redis, and must change no key. */
  onlyReads?: boolean
  onProgress?: (line: string) => void
  /**
   * How long `serve` waits for a database that starts together with it, milliseconds; 30,000 unless
   * given.
   */
  databaseWaitMs?: number
  /** Stops waiting for a database that is not there yet. */
  signal?: AbortSignal | undefined
  onOutage?: RedisCounterOptions['onOutage']
  onOtherServer?: RedisCounterOptions['onOtherServer']
  onBatch?: RedisCounterOptions['onBatch']
  /** A queue was full, and a request was answered 503. */
  onShed?: (queue: string) => void
  onRedisCall?: RedisCounterOptions['onCall']
  onScanned?: RedisCounterOptions['onScanned']
  /** How long work waited for a connection of this pool. */
  onPostgresWait?: (pool: string, seconds: number) => void
  /** How long work held a connection of this pool. */
  onPostgresCall?: (pool: string, seconds: number) => void
  /** A refusal or a count could not be stored: there is no partition for its day. */
  onNoPartition?: () => void
  /** How long after its commit every instance saw a change. */
  onPublished?: (seconds: number) => void
  /** A connection to count on in place of REDIS_URL's. */
  redis?: Redis | Cluster
  /**
   * How many times longer than usual to wait for Redis and Postgres. Tests of anything else must
   * not fail on a busy machine.
   */
  patience?: number | undefined
}
