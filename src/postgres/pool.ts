/**
 * Connections to Postgres with a time limit of our own: postgres.js waits without end for a connection and for an answer.
 * Whatever cannot be had in time is Unavailable; a connection that has fallen silent is replaced, so that recovery needs no
 * restart.
 */
import postgres, { type Sql } from 'postgres'
import { Unavailable } from '../stores.ts'

export interface PoolOptions {
  url: string
  /** What it is for; shown in pg_stat_activity. */
  purpose: string
  /** Connections at most. */
  max: number
  /** From asking to the answer, milliseconds, unless said otherwise. */
  timeoutMs: number
}

/** What a statement is written with: the pool's connections or a transaction. */
export type Query = postgres.ISql

export interface Pool {
  /** Runs the work with the pool's connections. Rejects with Unavailable when the server is away or too slow. */
  run<T>(work: (sql: Sql) => Promise<T>, timeoutMs?: number): Promise<T>
  /** Lets what is under way finish, for at most a second. */
  close(): Promise<void>
}

/**
 * The server gives a statement up before we do: then its connection is sound and goes on. Only a server that does not
 * even do that is taken for gone.
 */
const statementTimeoutShare = 0.8

export function createPool({ url, purpose, max, timeoutMs }: PoolOptions): Pool {
  const options = {
    max,
    // The least that leaves transactions working: an unrelated slow statement must not hold up what is queued behind it.
    // (postgres.js reads this option, but its types do not list it.)
    max_pipeline: 1,
    connect_timeout: 2,
    backoff: () => 0.2,
    fetch_types: false,
    onnotice: () => {},
    connection: {
      application_name: `latchkey ${purpose}`,
      statement_timeout: Math.floor(timeoutMs * statementTimeoutShare),
      idle_in_transaction_session_timeout: timeoutMs * 2,
    },
  }
  const open = () => postgres(url, options)
  let sql = open()

  return {
    async run(work, limitMs = timeoutMs) {
      const mine = sql
      let timer: NodeJS.Timeout | undefined
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => {
          reject(new Unavailable(`Postgres (${purpose}): no answer in ${Math.round(limitMs)} ms`))
          if (mine !== sql || limitMs < timeoutMs / 2) return
          sql = open()
          mine.end({ timeout: 0 }).catch(() => {})
        }, limitMs)
      })
      try {
        return await Promise.race([work(mine), late])
      } catch (error) {
        throw isServersFault(error) ? new Unavailable(`Postgres (${purpose}): ${describe(error)}`) : error
      } finally {
        clearTimeout(timer)
      }
    },
    close: () => sql.end({ timeout: 1 }),
  }
}

/** SQLSTATE classes that say something of our statement: data, constraint, syntax. Any other is the server's state. */
const ourFaultClasses = ['21', '22', '23', '42']

/** Away, starting, stopping, full, read-only, refused, timed out: all mean "not now". */
export function isServersFault(error: unknown): boolean {
  const code = (error as { code?: unknown }).code
  if (typeof code !== 'string') return false
  return !(/^[0-9A-Z]{5}$/.test(code) && ourFaultClasses.includes(code.slice(0, 2)))
}

const describe = (error: unknown) =>
  (error instanceof Error && error.message) || String((error as { code?: string }).code)
