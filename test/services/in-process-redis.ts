// The last resort's Redis: one virtual server for each process, reached over in-memory connections by the real ioredis.
import { AbstractConnector, type RedisOptions } from 'ioredis'

type Connector = NonNullable<RedisOptions['Connector']>

let shared: Promise<Connector> | undefined

export function inProcessConnector(): Promise<Connector> {
  shared ??= makeConnector()
  return shared
}

async function makeConnector(): Promise<Connector> {
  // Loaded only where it is used: its Lua is a megabyte of WebAssembly.
  const { createRedisCommandExecutor, createVirtualConnection, RedisServerState } = await import(
    'js-redis-server/core'
  )
  const state = new RedisServerState({ databaseCount: 16 })
  const executor = createRedisCommandExecutor()

  // A class because ioredis constructs it.
  return class InProcessConnector extends AbstractConnector {
    constructor() {
      super(0)
    }
    async connect() {
      this.connecting = true
      const { clientSocket } = createVirtualConnection({ state, executor })
      // It has what ioredis uses of a socket.
      this.stream = clientSocket as unknown as NonNullable<typeof this.stream>
      return this.stream
    }
  }
}
