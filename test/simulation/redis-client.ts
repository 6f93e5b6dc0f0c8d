/** Redis as src/redis uses it: one connection at a time to the server that is the master. */
import { EventEmitter } from 'node:events'
import type { Redis } from 'ioredis'
import type { Chance } from './chance.ts'
import { createPipe, type Link } from './link.ts'
import type { RedisServer } from './redis-server.ts'
import type { Process, Time, Trace } from './time.ts'

export interface RedisService {
  /** Which server clients reach now. */
  master: RedisServer
}

interface Connection {
  server: RedisServer
  open: boolean
  /** Whether what was sent before the end still arrives. */
  deliversRest: boolean
  pending: Set<(error: Error) => void>
  /** Replies in the socket of the process. */
  unread: (() => void)[]
}

const connectTimeoutMs = 1000
const retryMs = 200
/** The reply to a call that was not counted. */
const timeLength = 16

/** As connectRedis makes it: nothing is queued, resent or retried, and it reconnects every 200 ms. */
export function createClient(
  time: Time,
  chance: Chance,
  owner: Process,
  {
    service,
    link,
    onRun,
    trace,
  }: { service: RedisService; link: Link; onRun: (sentAtMs: number) => void; trace: Trace },
): { client: Redis; check(): void } {
  const events = new EventEmitter()
  let connection: Connection | null = null
  let ended = false
  const client = Object.assign(events, {
    status: 'connecting',
    options: {},
    defineCommand(name: string) {
      const command = (...args: (string | number)[]) => send(name, args)
      Object.assign(client, { [name]: command, [`${name}Buffer`]: command })
    },
    get: (name: string) => send('get', [name]),
    disconnect(reconnect = false) {
      ended = !reconnect
      end(new Error('Connection is closed.'))
    },
  })

  function connect() {
    if (ended) return
    client.status = 'connecting'
    const server = service.master
    const refused = server.down || link.refusedUntilMs > time.nowMs
    const silent = link.heldUntilMs > time.nowMs
    const waitMs = silent ? connectTimeoutMs : chance.between(0.2, 2)
    time.at(time.nowMs + waitMs, () => (refused || silent ? fail(silent) : accepted(server)), owner)
  }

  function fail(silent: boolean) {
    const error = silent ? new Error('connect ETIMEDOUT') : new Error('connect ECONNREFUSED')
    events.emit('error', Object.assign(error, { code: silent ? 'ETIMEDOUT' : 'ECONNREFUSED' }))
    closed()
  }

  /** ioredis names its connection first, and takes no commands until the server has answered that. */
  function accepted(server: RedisServer) {
    if (server.down || server !== service.master) return fail(false)
    connection = { server, open: true, deliversRest: chance.is(0.5), pending: new Set(), unread: [] }
    toServer = createPipe(time, chance, link)
    toClient = createPipe(time, chance, link)
    client.status = 'connect'
    events.emit('connect')
    call(connection, 'client', ['setname', 'latchkey']).then(
      () => {
        client.status = 'ready'
        events.emit('ready')
      },
      () => {},
    )
  }

  function closed() {
    client.status = 'reconnecting'
    events.emit('close')
    time.at(time.nowMs + retryMs, connect, owner)
  }

  function end(error: Error) {
    if (connection === null) return
    const { pending } = connection
    connection.open = false
    connection = null
    for (const reject of pending) reject(error)
    closed()
  }

  let toServer: ReturnType<typeof createPipe>
  let toClient: ReturnType<typeof createPipe>

  function send(command: string, args: (string | number)[]): Promise<unknown> {
    if (connection === null || client.status !== 'ready')
      return Promise.reject(new Error("Stream isn't writeable"))
    return call(connection, command, args)
  }

  function call(on: Connection, command: string, args: (string | number)[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const { server, pending } = on
      const sentAtMs = time.nowMs
      pending.add(reject)
      const [there, back] = [toServer, toClient]
      there(
        () => server.frozenUntilMs,
        () => {
          if (server.down || (!on.open && !on.deliversRest)) return
          const refusal = refusalOf(server, command)
          const reply = refusal ?? server.run(command, args)
          if (Buffer.isBuffer(reply) && reply.length > timeLength) onRun(sentAtMs)
          if (command !== 'latchkeyProbe' && command !== 'client')
            trace?.(`${owner.name}: ${described(command, args, server)}`)
          const deliver = () => {
            if (!on.open) return
            pending.delete(reject)
            if (refusal === null) resolve(reply)
            else reject(refusal)
          }
          back(
            () => 0,
            () => arrive(on, deliver),
          )
        },
      )
    })
  }

  /** What has arrived while the process was busy is read at once. */
  function arrive({ unread }: Connection, deliver: () => void) {
    const read = () => {
      for (const one of unread.splice(0)) one()
    }
    if (unread.push(deliver) === 1) time.at(time.nowMs, read, owner)
  }

  function refusalOf({ refuses: { untilMs, reply } }: RedisServer, command: string): Error | null {
    if (untilMs <= time.nowMs || command === 'client' || (command === 'get' && reply !== 'LOADING'))
      return null
    return Object.assign(new Error(`${reply} of the simulation`), { name: 'ReplyError' })
  }

  time.at(time.nowMs, connect, owner)
  return {
    client: client as unknown as Redis,
    /** Ends the connection if its server is down or the link refuses it. */
    check() {
      if (connection === null) return
      if (!connection.server.down && link.refusedUntilMs <= time.nowMs) return
      time.at(time.nowMs, () => end(new Error('read ECONNRESET')), owner)
    },
  }
}

/** "hit of apk_0: Redis has 2" */
function described(command: string, args: (string | number)[], { data }: RedisServer): string {
  const names = args.map(String).filter((arg) => data.has(arg))
  const what = command.replace(/^latchkey|Buffer$/g, '').toLowerCase()
  return names.map((name) => `${what} of ${name.slice(4, -3)}: Redis has ${data.get(name)!.text}`).join('; ')
}
