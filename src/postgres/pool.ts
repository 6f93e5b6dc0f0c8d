/**
 * Connections to Postgres with our own time limit: postgres.js waits forever for a connection and
 * for a response. Work that misses its deadline rejects with Unavailable. A connection that has
 * fallen silent is replaced, so recovery needs no restart.
 */
import type { ISql, Sql } from 'postgres'
import { Overloaded, Unavailable } from '../stores.ts'
import { postgresAt } from './connect.ts'
import { describe, isConnectionFault, isServersFault, lacksPartition, readOnlyFault } from './faults.ts'
import { createLanes, type Kind, type Turn } from './lanes.ts'
import type { SslSettings } from './ssl.ts'

export interface PoolOptions {
  url: string
  ssl?: SslSettings
  /** What the pool is for; shown in pg_stat_activity. */
  purpose: string
  /** Maximum number of connections. */
  max: number
  /** Milliseconds from the call of `run` until it rejects. */
  timeoutMs: number
  /** Called each time work is shed because too much is waiting. */
  onShed?: () => void
  /** How long work waited for its connection, or until it gave up. */
  onWait?: ((seconds: number) => void) | undefined
  /** How long work held its connection. */
  onCall?: (seconds: number) => void
  /** Called for each row that no partition takes. */
  onNoPartition?: () => void
}

/**
 * The tag that statements are written with. It has no `begin`: if a connection ends inside a
 * transaction, postgres.js 3.4 sends the rollback to a socket that is gone, which ends the process.
 * Anything that needs a transaction is a database function.
 */
export type Query = ISql

/** `noteReadOnly`: the server has said that it takes no writes, so the pool looks for another. */
export type Work<T> = (sql: Query, noteReadOnly: () => void) => Promise<T>

export interface Pool {
  /**
   * Runs the work, statement by statement; there are no transactions here (see sql/postgres).
   * Rejects with Unavailable if the server is down or too slow. The work itself continues, and may
   * still learn that its statement succeeded. Work in the same `lane` uses at most half of the
   * connections and waits in its own queue.
   */
  run<T>(work: Work<T>, lane?: string): Promise<T>
  /** The same for work that commits something. Together it leaves one connection for `run`. */
  change<T>(work: Work<T>, lane?: string): Promise<T>
  /** Lets work in flight finish, for at most a second. */
  close(): Promise<void>
}

/**
 * The server cancels a statement before our deadline, so that the connection stays usable. Only a
 * server that does not even do that counts as lost.
 */
const statementTimeoutShare = 0.8
const silentShare = 0.95
/**
 * Replacing silent connections helps if only they are broken, so the first time it happens at once.
 * If the server hangs, it keeps the old ones: a commit that waits for a lost synchronous standby
 * obeys no timeout. So the next connections get a second, and then four times as long each time: in
 * an hour of this a pool replaces its connections seven times. TCP keepalive still finds a server
 * that is gone.
 */
const silentPauseMs = 1000
const silentPauseGrowth = 4
/**
 * A firewall may forget connections again and again. If work of the kind that was silent succeeds on
 * a new connection, only the old ones were broken, so the next loss is healed at once too. That may
 * be wrong: while commits hang, a change that changes nothing succeeds. So it counts only while a
 * pool has at most eight times its connections open, with those that the server has not closed. For
 * all pools, that is about the 100 that Postgres allows by default. Linux gives up a lost connection
 * after about 15 minutes, so in this time eight losses are healed at once. A server that answers
 * once and hangs, over and over, has at most 15 times a pool's connections after an hour.
 */
const openSetsMax = 8
/** How often to check whether the server works again, which ends the pause. */
const silentCheckMs = 1000
/**
 * How often to look for a server that takes writes while this one takes none (a standby, or a former
 * primary). It may be another host, or behind the same address by then. Until there is one, the open
 * connections keep serving reads.
 */
const readOnlyRetryMs = 500
/** Postgres 14 and later report these when a connection starts and whenever they change. */
const readOnlyParameters = ['in_hot_standby', 'default_transaction_read_only']

export function createPool(options: PoolOptions): Pool {
  const { url, ssl, purpose, max, timeoutMs, onShed, onWait, onCall, onNoPartition } = options
  const server = postgresAt(url, ssl)
  let openedAtMs = 0
  let readOnly = false
  let nextSearchMs = 0
  let pauseMs = 0
  /** For what kind of work silent connections were last replaced. */
  let silentKind: Kind | undefined
  let isClosed = false
  const connectOptions = {
    connect_timeout: 2,
    // By default, postgres.js replaces a connection after 30 to 60 minutes.
    max_lifetime: null,
    backoff: () => 0.2,
    connection: {
      application_name: `latchkey ${purpose}`,
      statement_timeout: Math.floor(timeoutMs * statementTimeoutShare),
    },
  }
  let current = open()

  function open(): Connections {
    openedAtMs = performance.now()
    readOnly = false
    const opened: Connections = { all: [], free: [] }
    const onparameter = (name: string, value: string) => {
      if (value === 'on' && readOnlyParameters.includes(name)) noteReadOnly(opened)
    }
    for (let i = 0; i < max; i++)
      opened.all.push(connectionOf(server.connect({ ...connectOptions, onparameter })))
    opened.free.push(...opened.all)
    return opened
  }

  function noteReadOnly(connections: Connections) {
    if (connections === current) readOnly = true
  }

  async function findWritable() {
    nextSearchMs = Infinity
    const from = current
    if (await server.findWritable(connectOptions).catch(() => false)) renew(from)
    nextSearchMs = performance.now() + readOnlyRetryMs
  }

  /**
   * Run only as much work at once as there are connections. By itself, postgres.js sends a
   * statement that finds no free connection down a busy one, where it may wait behind a slow
   * statement.
   */
  const lanes = createLanes(max)
  const places = new Set<Place>()

  /**
   * Takes a place for one piece of work, whose turn it is. The place is held until the work ends,
   * even if nobody waits for it any more, because its statement continues.
   */
  function takePlace(kind: Kind, lane?: string): Place {
    if (readOnly && performance.now() > nextSearchMs) void findWritable()
    const from = current
    const connection = from.free.pop()!
    const place: Place = {
      kind,
      connection,
      from,
      startedAtMs: performance.now(),
      leave() {
        if (!places.delete(place)) return
        from.free.push(connection)
        lanes.leave(kind, lane)
      },
    }
    places.add(place)
    return place
  }

  /**
   * Opens new connections for new work. Work on the old ones gets another second, because it may
   * have committed a change.
   */
  function renew(old: Connections) {
    if (old !== current || isClosed) return
    current = open()
    for (const { end } of old.all) end({ timeout: 1 }).catch(() => {})
    for (const place of places) place.leave()
  }

  /**
   * Called after a deadline. A connection that does not even report the statement timeout counts as
   * lost. Each statement has its own.
   */
  function renewIfSilent(place: Place) {
    const leftMs = () => {
      const startedAtMs = Math.max(place.startedAtMs, place.connection.statementAtMs)
      return Math.max(startedAtMs + timeoutMs * silentShare, openedAtMs + pauseMs) - performance.now()
    }
    const renewing = setTimeout(
      () => {
        if (!places.has(place)) return
        if (leftMs() > 0) return renewIfSilent(place)
        pauseMs = pauseMs === 0 ? silentPauseMs : pauseMs * silentPauseGrowth
        silentKind = place.kind
        renew(place.from)
      },
      Math.min(Math.max(0, leftMs()), silentCheckMs),
    )
    renewing.unref()
  }

  /** Called after a success. Reads may succeed while commits hang, so not each one ends the pause. */
  function endPause({ kind, from }: Place) {
    const helped = kind === silentKind && from === current
    if (server.openConnections() <= max * (helped ? openSetsMax : 1)) pauseMs = 0
  }

  /** Works out from an error whether the connection is still usable. */
  function judge(error: unknown, { from }: Place) {
    const { code } = error as { code?: unknown }
    if (code === readOnlyFault) noteReadOnly(from)
    // postgres.js 3.4 keeps the server's reason for closing a connection and reports it for the
    // next statement on it. If a socket fails before all is written, the next one writes nothing. So
    // replace the connections.
    if (isConnectionFault(error)) renew(from)
  }

  async function runAs<T>(kind: Kind, work: Work<T>, lane?: string): Promise<T> {
    const askedAtMs = performance.now()
    let timer: NodeJS.Timeout | undefined
    let turn: Turn | undefined
    let place: Place | undefined
    const lateness = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        if (place) renewIfSilent(place)
        else {
          turn?.giveUp()
          onWait?.(timeoutMs / 1000)
        }
        reject(new Unavailable(`Postgres (${purpose}): no answer in ${timeoutMs} ms`))
      }, timeoutMs)
    })
    const attempt = async () => {
      turn = lanes.enter(kind, lane)
      await turn?.come
      place = takePlace(kind, lane)
      onWait?.((place.startedAtMs - askedAtMs) / 1000)
      try {
        const { connection, from } = place
        const result = await work(connection.sql, () => noteReadOnly(from))
        endPause(place)
        return result
      } catch (error) {
        judge(error, place)
        throw error
      } finally {
        onCall?.((performance.now() - place.startedAtMs) / 1000)
        place.leave()
      }
    }
    try {
      return await Promise.race([attempt(), lateness])
    } catch (error) {
      if (error instanceof Overloaded) onShed?.()
      if (lacksPartition(error)) onNoPartition?.()
      if (!isServersFault(error)) throw error
      throw new Unavailable(`Postgres (${purpose}): ${describe(error)}`, { cause: error })
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    run: (work, lane) => runAs('read', work, lane),
    change: (work, lane) => runAs('change', work, lane),
    close() {
      isClosed = true
      return server.close()
    },
  }
}

/**
 * One postgres.js client for each connection. In a client with several, postgres.js 3.4 leaves an
 * empty slot per statement in an array that it searches for every statement (src/queue.js): after
 * 350,000 statements each one cost three times as much, and the cost kept rising.
 */
interface Connections {
  readonly all: Connection[]
  readonly free: Connection[]
}

interface Connection {
  readonly sql: Query
  readonly end: Sql['end']
  /** When the latest statement was written. */
  readonly statementAtMs: number
}

function connectionOf(client: Sql): Connection {
  const noting = (...args: Parameters<Query>) => {
    connection.statementAtMs = performance.now()
    return client(...args)
  }
  const connection = { sql: Object.assign(noting, client) as Query, end: client.end, statementAtMs: 0 }
  return connection
}

interface Place {
  readonly kind: Kind
  readonly connection: Connection
  readonly from: Connections
  readonly startedAtMs: number
  leave(): void
}
