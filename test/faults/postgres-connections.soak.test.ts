// The service's connections to Postgres ended over and over, all slots taken by others, and all that
// changes may use held up.
import { setTimeout as pause } from 'node:timers/promises'
import postgres, { type Sql } from 'postgres'
import t, { type Test } from 'tap'
import { poolBounds } from '../../src/wiring/pools.ts'
import { type Load, startLoad, statuses } from '../load.ts'
import { until } from '../process/until.ts'
import { openDatabase, startPrivatePostgres } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { makeKeys } from './fleet.ts'
import {
  everything,
  figuresOf,
  holdLock,
  type Outcome,
  onlyCached,
  startWorld,
  underLoad,
} from './postgres-fault.ts'

/**
 * A few more than the service has. A refusal beyond it looks like max_connections to a client, and
 * needs no 300 processes.
 */
const connectionsMax = 16

const server = await startPrivatePostgres(t)
const operator = openDatabase(t, server.url)
// As is usual in production, a role that is no superuser owns the database.
await operator`create role latchkey login`
await operator`create database latchkey owner latchkey connection limit ${operator.unsafe(`${connectionsMax}`)}`
const databaseUrl = Object.assign(new URL(server.url), { username: 'latchkey', pathname: '/latchkey' }).href
const world = await startWorld(t, databaseUrl)
const { instance } = world

/** As an operator does; answers how many there were. */
const endConnections = async () => {
  const ended = await operator`
    select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'latchkey %'`
  return ended.length
}

/**
 * Keys that cannot be changed until they are unlocked, each with a caller. Two users, because one
 * has only half of the connections.
 */
async function lockKeys(t: Test) {
  const pairs = await Promise.all([1, 2].map(() => makeKeys({ office: instance }, 2)))
  const locked = pairs.map(([caller, key]) => ({
    token: caller!.token,
    path: `/v1/keys/${key!.id}`,
    key: key!,
  }))
  const ids = locked.map(({ key }) => key.id)
  const lock = (tx: Sql) => tx`select from api_keys where id = any (${ids}) for update`
  return { locked, unlock: await holdLock(openDatabase(t, databaseUrl), lock) }
}

t.test(
  'all connections ended over and over under load: keys in use go on, the rest is right or 503',
  async (t) => {
    let ended = 0
    let isOver = false
    let ending = Promise.resolve()
    const end = () => {
      isOver = true
      return ending
    }
    t.teardown(end)
    async function endAgainAndAgain() {
      while (!isOver) {
        ended += await endConnections()
        await pause(50)
      }
    }
    const outcome = await underLoad(t, world, {
      async begin() {
        isOver = false
        ending = endAgainAndAgain()
      },
      end,
      forMs: scaled(2000, 120_000),
      fates: { ...everything, listing: 'falters', writing: 'falters', unknown: 'falters', fresh: 'falters' },
    })
    t.ok(ended > scaled(10, 500), `${ended} connections ended`)
    recordFigure(t, 'postgres-terminated', { ended, ...figuresOf([outcome]) })
  },
)

t.test('every connection taken by others: keys in use go on, all else is 503 until some leave', async (t) => {
  let crowd: Sql[] = []
  const leave = async () => {
    await Promise.all(crowd.map((one) => one.end({ timeout: 0 })))
    crowd = []
  }
  t.teardown(leave)
  /** False once there is none left. */
  async function takeOne(): Promise<boolean> {
    const sql = postgres(databaseUrl, { max: 1, fetch_types: false, onnotice: () => {} })
    try {
      await sql`select 1`
      crowd.push(sql)
      return true
    } catch (error) {
      await sql.end({ timeout: 0 })
      if ((error as { code?: string }).code === '53300') return false
      throw error
    }
  }
  const takeAll = () =>
    until('all connections are taken', async () => {
      while (await takeOne());
      await endConnections()
      return crowd.length === connectionsMax
    })
  const outcomes: Outcome[] = []
  for (let round = 0; round < scaled(1, 5); round++) {
    const forMs = scaled(1500, 10_000)
    outcomes.push(await underLoad(t, world, { begin: takeAll, end: leave, forMs, fates: onlyCached }))
  }
  recordFigure(t, 'postgres-full', figuresOf(outcomes))
})

t.test('connections that end in the middle of a statement leave nothing to the next one', async (t) => {
  const statusOf = async (method: string, path: string, token: string) =>
    (await instance.ask(method, path, { token })).status
  const { locked, unlock } = await lockKeys(t)
  const held = [...locked, ...locked].map(({ path, token }) => statusOf('DELETE', path, token))
  await until('every connection that changes may use is held up', async () => {
    const waiting = await operator`select from pg_stat_activity
      where application_name = 'latchkey management' and wait_event_type = 'Lock'`
    return waiting.length === poolBounds.management.max - 1
  })
  await endConnections()
  t.strictSame(await Promise.all(held), [503, 503, 503, 503])
  unlock()
  // More at once than there are connections, so that each of them is used.
  const lists = Array.from({ length: 20 }, (_, i) => statusOf('GET', '/v1/keys', locked[i % 2]!.token))
  t.strictSame([...new Set(await Promise.all(lists))], [200])
})

t.test('all changes held up by a lock: neither authentication nor lists notice', async (t) => {
  const blocked: Load[] = []
  const { locked, unlock } = await lockKeys(t)
  const outcome = await underLoad(t, world, {
    async begin() {
      for (const { token, path } of locked)
        blocked.push(
          startLoad(t, { urls: [instance.url], tokens: [token], perSecond: 20, method: 'DELETE', path }),
        )
    },
    end: async () => unlock(),
    forMs: scaled(2000, 30_000),
    fates: { ...everything, writing: 'falters' },
  })
  t.ok((statuses(outcome.samples.writing)[503] ?? 0) > 0, 'a change found no connection free')
  const held = (await Promise.all(blocked.map((load) => load.stop()))).flat()
  t.strictSame(Object.keys(statuses(held)), ['200', '503'], 'what is held up is 503, and done once it is not')
  for (const { key } of locked)
    t.equal((await instance.ask('GET', '/v1/verify', { token: key.token })).status, 401)
  recordFigure(t, 'postgres-pool', figuresOf([outcome]))
})
