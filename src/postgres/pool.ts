/**
 * Connections to Postgres with a time limit of our own: postgres.js waits without end for a connection and for an answer.
 * Whatever cannot be had in time is Unavailable; a connection that has fallen silent is replaced, so that recovery needs no
 * restart.
 */
import type { ISql, Sql } from 'postgres'
import { Overloaded, Unavailable } from '../stores.ts'
import { postgresAt } from './connect.ts'
import { createLanes } from './lanes.ts'
import type { SslSettings } from './ssl.ts'

export interface PoolOptions {
  url: string
  ssl?: SslSettings
  /** What it is for; shown in pg_stat_activity. */
  purpose: string
  /** Connections at most. */
  max: number
  /** From asking to the answer, milliseconds, unless said otherwise. */
  timeoutMs: number
  /** One more work was shed: too many were waiting. */
  onShed?: () => void
}

/**
 * What a statement is written with. Without `begin`: postgres.js 3.4 sends the rollback of a transaction whose connection has
 * ended to a socket that is gone, and the process ends of it. What needs a transaction is a function in the database.
 */
export type Query = ISql

export interface Pool {
  /**
   * Runs the work, statement by statement: there are no transactions here (see sql/postgres). Rejects with Unavailable when the
   * server is away or too slow; the work itself goes on, and may still learn that it was done. Works of one `lane` use half of
   * the connections at most, and wait in a queue of their own.
   */
  run<T>(work: (sql: Query) => Promise<T>, lane?: string): Promise<T>
  /** Whether the server takes no writes, as far as it has said: a standby, which may not have what was committed elsewhere. */
  readonly isReadOnly: boolean
  /** Lets what is under way finish, for at most a second. */
  close(): Promise<void>
}

/**
 * The server gives up a statement before we do, so its connection stays usable. Only a server that does not even do that
 * counts as lost.
 */
const statementTimeoutShare = 0.8
const silentShare = 0.95
/**
 * While the server takes no writes (a standby, or a primary that is none any more) a new connection is tried this often: behind
 * the same address there may be another by then, and ours would stay where they are.
 */
const readOnlyRetryMs = 500
/** As Postgres tells by itself, from 14 on, at the start of a connection and when it changes. */
const readOnlyParameters = ['in_hot_standby', 'default_transaction_read_only']
/** SQLSTATE read_only_sql_transaction. */
const readOnlyFault = '25006'

export function createPool({ url, ssl, purpose, max, timeoutMs, onShed = () => {} }: PoolOptions): Pool {
  const connect = postgresAt(url, ssl)
  let openedAtMs = 0
  let readOnly = false
  let current = open()

  function open(): Connections {
    openedAtMs = performance.now()
    readOnly = false
    const opened: Connections = { all: [], free: [] }
    const options = {
      max: 1,
      connect_timeout: 2,
      backoff: () => 0.2,
      fetch_types: false,
      onnotice: () => {},
      onparameter(name: string, value: string) {
        if (opened === current && value === 'on' && readOnlyParameters.includes(name)) readOnly = true
      },
      connection: {
        application_name: `latchkey ${purpose}`,
        statement_timeout: Math.floor(timeoutMs * statementTimeoutShare),
      },
    }
    for (let i = 0; i < max; i++) opened.all.push(connect(options))
    opened.free.push(...opened.all)
    return opened
  }

  /**
   * As many works at once as there are connections. Left to itself, postgres.js sends a statement that finds no free connection
   * down a busy one, where it waits behind a slow one.
   */
  const lanes = createLanes(max)
  const places = new Set<Place>()

  /** For one work. It is held until the work has ended, also when nobody waits for it any more: its statement goes on. */
  async function takePlace(lane?: string): Promise<Place> {
    await lanes.enter(lane)
    if (readOnly && performance.now() - openedAtMs > readOnlyRetryMs) renew(current)
    const from = current
    const sql = from.free.pop()!
    const place: Place = {
      sql,
      from,
      startedAtMs: performance.now(),
      leave() {
        if (!places.delete(place)) return
        from.free.push(sql)
        lanes.leave(lane)
      },
    }
    places.add(place)
    return place
  }

  /** New connections for what comes. What is under way on the old ones has another second: a change may have been committed. */
  function renew(left: Connections) {
    if (left !== current) return
    current = open()
    for (const sql of left.all) sql.end({ timeout: 1 }).catch(() => {})
    for (const place of places) place.leave()
  }

  /** After a deadline. A connection that does not even report the statement timeout is considered lost. */
  function renewIfSilent(place: Place) {
    const leftMs = place.startedAtMs + timeoutMs * silentShare - performance.now()
    const renewing = setTimeout(() => places.has(place) && renew(place.from), Math.max(0, leftMs))
    renewing.unref()
  }

  /** Learns from the fault of a work what it says of its connection. */
  function judge(error: unknown, { from }: Place) {
    const { code } = error as { code?: unknown }
    if (from === current && code === readOnlyFault) readOnly = true
    // postgres.js 3.4 keeps the server's reason for closing a connection and gives it to the next statement on it.
    if (code === 'CONNECTION_CLOSED' || code === 'CONNECT_TIMEOUT') renew(from)
  }

  return {
    async run(work, lane) {
      let timer: NodeJS.Timeout | undefined
      let place: Place | undefined
      let late = false
      const lateness = new Promise<never>((_, reject) => {
        timer = setTimeout(() => {
          late = true
          if (place) renewIfSilent(place)
          reject(new Unavailable(`Postgres (${purpose}): no answer in ${timeoutMs} ms`))
        }, timeoutMs)
      })
      const attempt = async () => {
        place = await takePlace(lane)
        try {
          // Whoever has given up meanwhile must not be acted for.
          if (late) throw new Unavailable('too late')
          return await work(place.sql)
        } catch (error) {
          judge(error, place)
          throw error
        } finally {
          place.leave()
        }
      }
      try {
        return await Promise.race([attempt(), lateness])
      } catch (error) {
        if (error instanceof Overloaded) onShed()
        throw isServersFault(error) ? new Unavailable(`Postgres (${purpose}): ${describe(error)}`) : error
      } finally {
        clearTimeout(timer)
      }
    },
    get isReadOnly() {
      return readOnly
    },
    async close() {
      await Promise.all(current.all.map((sql) => sql.end({ timeout: 1 })))
    },
  }
}

/**
 * One client of postgres.js for each connection. In a client with several, postgres.js 3.4 leaves an empty slot per statement in
 * an array that it searches at each one (src/queue.js): after 350,000 statements each cost three times as much, without end.
 */
interface Connections {
  readonly all: Sql[]
  readonly free: Sql[]
}

interface Place {
  readonly sql: Sql
  readonly from: Connections
  readonly startedAtMs: number
  leave(): void
}

/** SQLSTATE classes that say something of our statement: data, constraint, syntax. Any other is the server's state. */
const ourFaultClasses = ['21', '22', '23', '42']

/** postgres.js's, the socket's and TLS's own codes; others (ERR_…, UNDEFINED_VALUE) are faults in our code. */
const connectionFault = /^(CONNECT|E[A-Z]+$|ERR_SSL_)/

/** Away, starting, stopping, full, read-only, refused, timed out: all mean "not now". */
export function isServersFault(error: unknown): boolean {
  const code = (error as { code?: unknown }).code
  if (typeof code !== 'string') return false
  // No partition for the row (23514 without a constraint's name): the audit log's next days could not be made.
  if (code === '23514' && !(error as { constraint_name?: string }).constraint_name) return true
  if (/^[0-9A-Z]{5}$/.test(code)) return !ourFaultClasses.includes(code.slice(0, 2))
  return connectionFault.test(code)
}

const describe = (error: unknown) =>
  (error instanceof Error && error.message) || String((error as { code?: string }).code)
