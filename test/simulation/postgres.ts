/** A small model of Postgres: keys with versions, the audit log, and pools with time limits. */
import type { Pool } from '../../src/postgres/pool.ts'
import { type KeyCredential, type ServerRole, Unavailable } from '../../src/stores.ts'
import type { Chance } from './chance.ts'
import { createPipe, type Link } from './link.ts'
import { type Process, startMs, type Time, type Trace } from './time.ts'

export interface PostgresServer {
  readonly keys: Map<string, KeyCredential>
  /** Last uses by key, in Unix seconds. */
  readonly uses: Map<string, number>
  /** The ids of changed keys and users, in the order of their commits; null once they are deleted. */
  readonly changes: (string | null)[]
  /** The request ids of committed refusals. */
  readonly audit: Set<string>
  /** What each instance has reported. */
  readonly instances: Map<string, Reported>
  fence: number
  frozenUntilMs: number
  downUntilMs: number
  /** Raised when every connection ends. */
  epoch: number
  /** The keys as they were before each change, for reads from a standby. */
  readonly past: { untilMs: number; key: KeyCredential }[]
}

/** `changesSince`: how many changes there were at the question that it may repeat. */
interface Reported {
  seenMs: number
  fence: number
  changesSince: number
}

/** The server that keys are read from, and the moment up to which it has the changes. */
export interface Source {
  role: ServerRole
  hasUntilMs(nowMs: number): number
}

export const primary: Source = { role: 'primary', hasUntilMs: (nowMs) => nowMs }

export const createPostgres = (): PostgresServer => ({
  keys: new Map(),
  uses: new Map(),
  changes: [],
  audit: new Set(),
  instances: new Map(),
  fence: 0,
  frozenUntilMs: 0,
  downUntilMs: 0,
  epoch: 0,
  past: [],
})

/** As `key_server`: a server that has restarted is another one. */
export const nameOf = ({ epoch }: PostgresServer): string => String(epoch)

/** The keys as they were at a moment. */
export const keysAt = ({ keys, past }: PostgresServer, atMs: number): KeyCredential[] =>
  [...keys.values()].map(
    (key) => past.find(({ untilMs, key: { id } }) => id === key.id && untilMs > atMs)?.key ?? key,
  )

/** A statement: runs at one moment, and is committed then. `what`: for the trace. */
export type Statement = <T>(
  run: (server: PostgresServer, nowS: number) => T,
  what?: (result: T) => string | undefined,
) => Promise<T>

export interface PoolOptions {
  server: PostgresServer
  link: Link
  timeoutMs: number
  trace: Trace
}

/** As src/postgres/pool.ts: rejects at the time limit, while the work goes on. */
export function createModelPool(
  time: Time,
  chance: Chance,
  owner: Process,
  { server, link, timeoutMs, trace }: PoolOptions,
): Pool {
  const statement: Statement = (run, what) =>
    new Promise((resolve, reject) => {
      const { epoch } = server
      const lost = () => reject(new Unavailable('connection lost'))
      const isLost = () => server.epoch !== epoch || link.refusedUntilMs > time.nowMs
      if (server.downUntilMs > time.nowMs || isLost()) {
        time.at(time.nowMs + chance.between(0.2, 2), lost, owner)
        return
      }
      const there = createPipe(time, chance, link)
      const back = createPipe(time, chance, link)
      there(
        () => server.frozenUntilMs,
        () => {
          if (isLost()) return void time.at(time.nowMs, lost, owner)
          const result = run(server, (startMs + time.nowMs) / 1000)
          const done = trace && what?.(result)
          if (done) trace(`${owner.name}: ${done}`)
          back(
            () => 0,
            () => time.at(time.nowMs, () => (isLost() ? lost() : resolve(result)), owner),
          )
        },
      )
    })

  const run: Pool['run'] = (work) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Unavailable(`no answer in ${timeoutMs} ms`)), timeoutMs)
      const settled = () => clearTimeout(timer)
      work(statement as never, () => {})
        .then(resolve, reject)
        .finally(settled)
    })
  return { run, change: run, close: async () => {} }
}
