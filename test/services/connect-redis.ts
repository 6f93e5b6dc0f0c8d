// ioredis connections to the run's Redis, whichever source it has.
import { Redis, type RedisOptions } from 'ioredis'
import { inProcessConnector } from './in-process-redis.ts'

export interface RedisConnections {
  connect(options?: RedisOptions): Redis
  closeAll(): void
}

export async function redisConnections(url: string | null): Promise<RedisConnections> {
  const base: RedisOptions = url === null ? { Connector: await inProcessConnector() } : optionsOf(url)
  const open: Redis[] = []
  return {
    connect(options = {}) {
      // Options that name another server (a proxy, one of the test's own) lead there.
      const elsewhere = 'host' in options || 'port' in options || 'path' in options
      // The default disconnectTimeout waits 2 s for a frozen server's goodbye.
      const all: RedisOptions = { ...(elsewhere ? {} : base), disconnectTimeout: 100, ...options }
      // replyMapping is typed as absent or given, and is for whoever passes it.
      const redis = new Redis(all as Omit<RedisOptions, 'replyMapping'>)
      open.push(redis)
      return redis
    },
    closeAll() {
      for (const redis of open) redis.disconnect()
    },
  }
}

/** Not `new Redis(url, options)`: there the URL overrules the options. */
function optionsOf(text: string): RedisOptions {
  const url = new URL(text)
  return {
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: Number(url.port || 6379),
    db: Number(url.pathname.slice(1) || 0),
    ...(url.username === '' ? {} : { username: decodeURIComponent(url.username) }),
    ...(url.password === '' ? {} : { password: decodeURIComponent(url.password) }),
    ...(url.protocol === 'rediss:' ? { tls: {} } : {}),
  }
}
