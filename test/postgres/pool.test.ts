// Connections to a Postgres that goes away: what cannot be had in time is Unavailable, and it comes back by itself.
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { createPool, type Pool, type PoolOptions } from '../../src/postgres/pool.ts'
import { Unavailable } from '../../src/stores.ts'
import { until } from '../process/until.ts'
import { startPrivatePostgres, startTcpProxy } from '../services/index.ts'
import { connect } from './open-stores.ts'

const server = await startPrivatePostgres(t)
const timeoutMs = 500

function open(t: Test, options: Partial<PoolOptions> = {}): Pool {
  const pool = createPool({ url: server.url, purpose: 'test', max: 2, timeoutMs, ...options })
  t.teardown(() => pool.close())
  return pool
}

const ask = (pool: Pool) => pool.run(async (sql) => (await sql`select 1 as one`)[0]!.one as number)
const answers = (pool: Pool) => async () => (await ask(pool).catch(() => 0)) === 1

/** How each of these ended: null, or the fault. */
const ends = (work: Promise<unknown>[]): Promise<unknown[]> =>
  Promise.all(
    work.map((one) =>
      one.then(
        () => null,
        (error) => error,
      ),
    ),
  )

async function awayAndBack(t: Test, pool: Pool, away: () => Promise<void>, back: () => Promise<void>) {
  t.equal(await ask(pool), 1)
  await away()
  for (let round = 0; round < 2; round++) {
    const ended = await ends(Array.from({ length: 20 }, () => ask(pool)))
    t.ok(
      ended.every((error) => error instanceof Unavailable),
      'Unavailable, each of them',
    )
  }
  await back()
  await until('it is there again', answers(pool))
}

t.test('a frozen Postgres is Unavailable in time, and there again once it is thawed', (t) =>
  awayAndBack(
    t,
    open(t),
    () => server.freeze(),
    () => server.thaw(),
  ),
)

t.test('a killed Postgres is Unavailable in time, and there again once it is restarted', (t) =>
  awayAndBack(
    t,
    open(t),
    () => server.kill(),
    () => server.restart(),
  ),
)

t.test(
  'a Postgres behind a network that swallows everything is Unavailable in time, and there again',
  async (t) => {
    const proxy = await startTcpProxy(t, server.url)
    const pool = open(t, { url: proxy.url })
    await awayAndBack(
      t,
      pool,
      async () => proxy.blackHole(),
      () => proxy.heal(),
    )
  },
)

t.test('a pool made while Postgres is away is there once Postgres is', async (t) => {
  await server.kill()
  const pool = open(t)
  const [ended] = await ends([ask(pool)])
  t.ok(ended instanceof Unavailable)
  await server.restart()
  await until('it is there', answers(pool))
})

/** A table that another transaction has locked until `unlock`. */
async function lockedTable(t: Test, name: string) {
  const sql = postgres(server.url, { max: 1, onnotice: () => {} })
  await sql`create table ${sql(name)} (id int)`
  let unlock = () => {}
  const locked = new Promise<void>((resolve) => {
    sql.begin(async (tx) => {
      await tx`lock table ${tx(name)} in access exclusive mode`
      resolve()
      await new Promise<void>((release) => {
        unlock = release
      })
    })
  })
  await locked
  t.teardown(async () => {
    unlock()
    await sql.end({ timeout: 1 })
  })
  return { unlock }
}

t.test('a locked table is Unavailable in time, and its connections are sound afterwards', async (t) => {
  const { unlock } = await lockedTable(t, 'locked_for_a_while')
  /** The server's own limit is a fifth before ours: the longer both are, the less a busy machine can make of it. */
  async function givenUp(timeoutMs: number) {
    const pool = open(t, { max: 1, timeoutMs })
    const backend = () => pool.run(async (sql) => (await sql`select pg_backend_pid() as pid`)[0]!.pid)
    const read = () => pool.run((sql) => sql`select from locked_for_a_while`)
    const before = await backend()
    const [ended] = await ends([read()])
    t.type(ended, Unavailable)
    return { read, sameConnection: (await backend()) === before }
  }
  let tried = await givenUp(timeoutMs)
  for (let ms = timeoutMs * 4; !tried.sameConnection && ms < 10_000; ms *= 4) tried = await givenUp(ms)
  t.ok(tried.sameConnection, 'the statement was given up, not the connection')
  unlock()
  const isReadable = () =>
    tried.read().then(
      () => true,
      () => false,
    )
  await until('it can be read', isReadable)
})

t.test('what waits for a connection that others hold is Unavailable in time', async (t) => {
  const pool = open(t, { max: 2 })
  const sleeping = Array.from({ length: 12 }, () => pool.run((sql) => sql`select pg_sleep(0.3)`))
  const ended = await ends(sleeping)
  t.ok(ended.every((error) => error === null || error instanceof Unavailable))
  t.ok(ended.at(-1) !== null, 'the last has not waited for all of those before it')
  await until('it goes on', answers(pool))
})

t.test('a statement that outlives its request still counts as its lane’s own', async (t) => {
  const pool = open(t, { max: 4 })
  const name = 'a flood'
  let flooding = true
  const flood = async () => {
    while (flooding) await pool.run((sql) => sql`select pg_sleep(10) as ${sql(name)}`, 'busy').catch(() => {})
  }
  const floods = Array.from({ length: 20 }, flood)
  const watch = postgres(server.url, { max: 1 })
  t.teardown(() => watch.end({ timeout: 1 }))
  const counts: number[] = []
  const untilMs = performance.now() + 4 * timeoutMs
  while (performance.now() < untilMs) {
    const [row] = await watch`select count(*)::int as running from pg_stat_activity
      where state = 'active' and query like ${`%"${name}"`}`
    counts.push(row!.running)
    t.equal(await pool.run(async (sql) => (await sql`select 1 as one`)[0]!.one, 'calm'), 1)
  }
  flooding = false
  await Promise.all(floods)
  t.equal(Math.max(...counts), 2, 'half of the connections')
})

t.test('a statement that is wrong is a fault of ours and not of the server', async (t) => {
  const pool = open(t)
  const faults: Record<string, (sql: postgres.ISql) => Promise<unknown>> = {
    'bad syntax': (sql) => sql`selekt 1`,
    'no such table': (sql) => sql`select from nowhere`,
    'a value out of range': (sql) => sql`select ${'99999999999'}::int`,
    'a NUL': (sql) => sql`select ${'a\0b'}::text`,
    'a value left undefined': (sql) => sql`select ${undefined as unknown as string}`,
    'a fault in the work itself': async () => (undefined as unknown as { name: string }).name,
    'a fault of Node in the work itself': async () => Buffer.alloc(-1),
  }
  for (const [what, work] of Object.entries(faults)) {
    const [ended] = await ends([pool.run(work)])
    t.ok(ended instanceof Error && !(ended instanceof Unavailable), what)
  }
  t.equal(await ask(pool), 1)
})

t.test('closing lets what is under way finish', async (t) => {
  const pool = open(t)
  const working = pool.run(async (sql) => (await sql`select pg_sleep(0.2), 7 as seven`)[0]!.seven)
  const look = connect(t, server.url)
  await until('it is under way', async () => {
    const [row] = await look`select from pg_stat_activity where wait_event = 'PgSleep'`
    return row !== undefined
  })
  await pool.close()
  t.equal(await working, 7)
})

t.test('what a pool is for is shown where an operator looks', async (t) => {
  const pool = open(t, { purpose: 'lookups' })
  const [row] = await pool.run((sql) => sql`select current_setting('application_name') as name`)
  t.match(row!.name, /latchkey.*lookups/)
})
