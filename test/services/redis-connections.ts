// ioredis connections to the run's Redis, from whichever source it comes.
import { AbstractConnector, Redis, type RedisOptions } from 'ioredis'

export interface RedisConnections {
  connect(options?: RedisOptions): Redis
  closeAll(): void
}

export async function redisConnections(url: string | null): Promise<RedisConnections> {
  const base: RedisOptions = url === null ? { Connector: await inProcessConnector() } : optionsOf(url)
  const open: Redis[] = []
  return {
    connect(options = {}) {
      // Options that name another server (a proxy, a private one) lead there.
      const elsewhere = 'host' in options || 'port' in options || 'path' in options
      // By default ioredis waits 2 s for a frozen server to say goodbye.
      const all: RedisOptions = { ...(elsewhere ? {} : base), disconnectTimeout: 100, ...options }
      // replyMapping is typed as absent or given.
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
    ...(url.username !== '' && { username: decodeURIComponent(url.username) }),
    ...(url.password !== '' && { password: decodeURIComponent(url.password) }),
    ...(url.protocol === 'rediss:' && { tls: {} }),
  }
}

const connectors: Record<string, Promise<NonNullable<RedisOptions['Connector']>>> = {}

/**
 * The last resort: one virtual server for each test file, reached by the real ioredis over
 * connections in memory.
 */
function inProcessConnector() {
  const { TOGETHER_ID = '' } = process.env
  // Imported only where it is used: its Lua is a megabyte of WebAssembly.
  connectors[TOGETHER_ID] ??= import('js-redis-server/core').then((library) => {
    const state = new library.RedisServerState({ databaseCount: 16 })
    const executor = library.createRedisCommandExecutor()
    // A class because ioredis constructs it.
    return class InProcessConnector extends AbstractConnector {
      constructor() {
        super(0)
      }
      async connect() {
        this.connecting = true
        const { clientSocket } = library.createVirtualConnection({ state, executor })
        // It has what ioredis uses of a socket.
        this.stream = clientSocket as unknown as NonNullable<typeof this.stream>
        return this.stream
      }
    }
  })
  return connectors[TOGETHER_ID]
}
