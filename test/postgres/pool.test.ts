// Connections to a Postgres that goes down, is slow, ends connections or is not Postgres: what
// cannot be had in time is Unavailable, and it works again by itself.
import dns from 'node:dns'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises'
import type postgres from 'postgres'
import t, { type Test } from 'tap'
import { readConfig } from '../../src/config.ts'
import { postgresAt } from '../../src/postgres/connect.ts'
import { examinePostgres } from '../../src/postgres/examine.ts'
import { migrate } from '../../src/postgres/migrate.ts'
import { createPool, type Pool, type PoolOptions } from '../../src/postgres/pool.ts'
import { writableFirst } from '../../src/postgres/writable-first.ts'
import { newId } from '../../src/rules/id.ts'
import { Unavailable } from '../../src/stores.ts'
import { openStores } from '../../src/wiring/stores.ts'
import { makeReadOnly } from '../faults/postgres-standby.ts'
import { until } from '../process/until.ts'
import { openDatabase, startPrivatePostgres, startTcpProxy } from '../services/index.ts'
import { asPostgres13, type Habit, startOddPort } from '../services/odd-ports.ts'
import { actor, storesOn } from './open-stores.ts'

const server = await startPrivatePostgres(t)
const standby = await startPrivatePostgres(t)
for (const { url } of [server, standby]) await migrate(url)
await makeReadOnly(t, standby.url)
const max = 2
const timeoutMs = 500

function open(t: Test, options: Partial<PoolOptions> = {}): Pool {
  const pool = createPool({ url: server.url, purpose: 'test', max, timeoutMs, ...options })
  t.teardown(() => pool.close())
  return pool
}

const ask = (pool: Pool, lane?: string) =>
  pool.run(async (sql) => (await sql`select 1 as one`)[0]!.one as number, lane)
const untilAnswered = (pool: Pool) =>
  until('it is answered', async () => (await ask(pool).catch(() => 0)) === 1)
const times = <T>(count: number, make: (n: number) => T) => Array.from({ length: count }, (_, n) => make(n))
/** How each of these ended: null, or the error. */
const outcomes = (work: Promise<unknown>[]) =>
  Promise.all(
    work.map((one) =>
      one.then(
        () => null,
        (error: unknown) => error,
      ),
    ),
  )
const isUnavailable = (error: unknown) => error instanceof Unavailable

const untilAsleep = (t: Test) => {
  const look = openDatabase(t, server.url, 4)
  return until('a statement sleeps', async () => {
    const [row] = await look`select from pg_stat_activity where wait_event = 'PgSleep'`
    return row !== undefined
  })
}

type Fault = (t: Test) => Promise<{ url?: string; begin: () => unknown; end: () => Promise<unknown> }>
const faults: Record<string, Fault> = {
  'is frozen': async () => ({ begin: server.freeze, end: server.thaw }),
  'is killed': async () => ({ begin: () => server.kill(), end: server.restart }),
  'is behind a network that swallows everything': async (t) => {
    const proxy = await startTcpProxy(t, server.url)
    return { url: proxy.url, begin: proxy.blackHole, end: proxy.heal }
  },
}

t.test('a connection outlives the time it had to open', async (t) => {
  const openTimeoutS = 1
  const sql = postgresAt(server.url).connect({ connect_timeout: openTimeoutS })
  t.teardown(() => sql.end({ timeout: 1 }))
  const backend = async () => (await sql`select pg_backend_pid() as pid`)[0]!.pid
  const before = await backend()
  await pause(openTimeoutS * 1000 + 100)
  t.equal(await backend(), before)
})

for (const [what, fault] of Object.entries(faults)) {
  t.test(`a Postgres that ${what} is Unavailable in time, and works again afterwards`, async (t) => {
    const { url = server.url, begin, end } = await fault(t)
    const pool = open(t, { url })
    await untilAnswered(pool)
    await begin()
    for (let round = 0; round < 2; round++) {
      const errors = await outcomes(times(20, () => ask(pool)))
      t.ok(errors.every(isUnavailable), 'Unavailable, each of them')
    }
    const late = open(t, { url })
    t.ok((await outcomes([ask(late)])).every(isUnavailable), 'also for a pool made meanwhile')
    await end()
    await Promise.all([pool, late].map(untilAnswered))
  })
}

t.test('new connections serve at once when the open ones fall silent, as in a failover', async (t) => {
  const proxy = await startTcpProxy(t, server.url)
  // Less than the second that work on the old connections gets.
  const pool = open(t, { url: proxy.url, timeoutMs: 900 })
  await Promise.all(times(max, () => ask(pool)))
  await server.freeze()
  t.teardown(server.thaw)
  proxy.retarget(standby.port)
  t.ok((await outcomes(times(max, () => ask(pool)))).every(isUnavailable))
  t.strictSame(await outcomes(times(max, () => ask(pool))), [null, null])
})

t.test('connections that are lost again and again are replaced each time, up to a bound', async (t) => {
  const network = await startTcpProxy(t, server.url)
  const pool = open(t, { url: network.url, max: 1 })
  const succeeds = async (kind: 'run' | 'change') =>
    (await outcomes([pool[kind]((sql) => sql`select`)]))[0] === null
  await untilAnswered(pool)
  const healsALoss = async (kind: 'run' | 'change') => {
    network.forget()
    t.equal(await succeeds(kind), false)
    return until('it succeeds again', () => succeeds(kind), 2000).catch(() => false)
  }
  let healed = 0
  while (healed < 20 && (await healsALoss(healed % 2 ? 'change' : 'run'))) healed++
  // A server that answers once and hangs, over and over, looks the same and keeps each connection.
  t.ok(healed >= 8 && healed <= 10, `${healed} losses are healed`)
})

t.test('work that ends late on an old connection says nothing of the new ones', async (t) => {
  const network = await startTcpProxy(t, server.url)
  // More than the first pause.
  const pool = open(t, { url: network.url, max: 1, timeoutMs: 1100 })
  let begun = 0
  let endEarlier = () => {}
  const lateWork = () =>
    pool.run(async (sql) => {
      await sql`select`
      begun++
      network.forget()
      endEarlier()
      await new Promise<void>((resolve) => {
        endEarlier = resolve
      })
    })
  for (let n = 0; n < 4; n++) t.ok((await outcomes([lateWork()])).every(isUnavailable))
  t.equal(begun, 3, 'the third connection is not replaced yet')
})

/** A table that another transaction has locked until `unlock`. */
async function lockedTable(t: Test, name: string) {
  const sql = openDatabase(t, server.url, 4)
  await sql`create table ${sql(name)} (id int)`
  let unlock = () => {}
  const unlocked = new Promise<void>((resolve) => {
    unlock = resolve
  })
  await new Promise<void>((resolve) => {
    sql.begin(async (tx) => {
      await tx`lock table ${tx(name)} in access exclusive mode`
      resolve()
      await unlocked
    })
  })
  t.teardown(unlock)
  return { unlock }
}

t.test('a locked table is Unavailable in time, and its connections are sound afterwards', async (t) => {
  const { unlock } = await lockedTable(t, 'locked_for_a_while')
  /**
   * The server's own limit is a fifth before ours: with longer limits a busy machine matters less.
   */
  async function givenUp(timeoutMs: number) {
    const pool = open(t, { max: 1, timeoutMs })
    const backend = () => pool.run(async (sql) => (await sql`select pg_backend_pid() as pid`)[0]!.pid)
    const read = () => pool.run((sql) => sql`select from locked_for_a_while`)
    const before = await backend()
    t.ok((await outcomes([read()])).every(isUnavailable))
    return { read, sameConnection: (await backend()) === before }
  }
  let tried = await givenUp(timeoutMs)
  for (let ms = timeoutMs * 4; !tried.sameConnection && ms < 10_000; ms *= 4) tried = await givenUp(ms)
  t.ok(tried.sameConnection, 'the statement was given up, not the connection')
  unlock()
  await until('it can be read', async () => (await outcomes([tried.read()]))[0] === null)
})

t.test('statements that each end in time keep their connection, though their request is late', async (t) => {
  const pool = open(t, { max: 1 })
  const pid = () => pool.run(async (sql) => (await sql`select pg_backend_pid() as pid`)[0]!.pid as number)
  const before = await pid()
  let ended = 0
  const late = pool.run(async (sql) => {
    for (; ended < 3; ended++) await sql`select pg_sleep(${(0.6 * timeoutMs) / 1000})`
  })
  t.ok((await outcomes([late])).every(isUnavailable))
  await until('they have ended', () => ended === 3)
  t.equal(await pid(), before)
})

t.test('what waits for a connection that others hold is Unavailable in time', async (t) => {
  const waits: number[] = []
  const pool = open(t, { onWait: (seconds) => waits.push(seconds) })
  const errors = await outcomes(times(12, () => pool.run((sql) => sql`select pg_sleep(0.3)`)))
  t.equal(waits.length, 12)
  t.ok(waits.filter((seconds) => seconds === timeoutMs / 1000).length > 1, 'those that gave up too')
  t.ok(errors.every((error) => error === null || isUnavailable(error)))
  t.ok(errors.at(-1) !== null, 'the last has not waited for all of those before it')
  let begun = 0
  const held = times(max, () => pool.run((sql) => sql`select pg_sleep(0.3)`))
  const late = times(8, () =>
    pool.run(async (sql) => {
      begun++
      await sql`select pg_sleep(0.3)`
    }),
  )
  await outcomes([...held, ...late])
  const begunInTime = begun
  await untilAnswered(pool)
  t.equal(begun, begunInTime, 'nothing is done for a caller who has given up')
})

t.test('a statement that outlives its request still counts as its lane’s own', async (t) => {
  const look = openDatabase(t, server.url, 4)
  /** The most statements of one lane at once, while another lane is asked too. */
  async function flooded(timeoutMs: number) {
    const pool = open(t, { max: 4, timeoutMs })
    const name = `a flood of ${timeoutMs} ms`
    let flooding = true
    const floods = times(20, async () => {
      while (flooding)
        await pool.run((sql) => sql`select pg_sleep(60) as ${sql(name)}`, 'busy').catch(() => {})
    })
    let most = 0
    const untilMs = performance.now() + 4 * timeoutMs
    while (performance.now() < untilMs) {
      const [row] = await look`select count(*)::int as running from pg_stat_activity
        where state = 'active' and query like ${`%"${name}"`}`
      const calm = await ask(pool, 'calm').then(
        () => 0,
        () => Infinity,
      )
      most = Math.max(most, row!.running, calm)
      await pause(10)
    }
    flooding = false
    await Promise.all(floods)
    return most
  }
  // If the server is late to end a statement, its connection is replaced, and the old statement
  // runs on beside new ones. With longer limits a busy machine matters less.
  let most = await flooded(timeoutMs)
  for (let ms = timeoutMs * 4; most > 2 && ms < 10_000; ms *= 4) most = await flooded(ms)
  t.equal(most, 2, 'half of the connections')
})

t.test('a statement that is wrong is a fault of ours and not of the server', async (t) => {
  const pool = open(t, { timeoutMs: 10_000 })
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
    const [error] = await outcomes([pool.run(work)])
    t.ok(error instanceof Error && !isUnavailable(error), what)
  }
  t.equal(await ask(pool), 1)
})

t.test('a row for which there is no partition yet is a fault of the server', async (t) => {
  const pool = open(t, { timeoutMs: 10_000 })
  const sql = openDatabase(t, server.url)
  await sql`create table by_day (day date not null, constraint not_too_old check (day > '2000-01-01')) partition by range (day)`
  const insert = (day: string) => pool.run((sql) => sql`insert into by_day values (${day})`)
  const [absent] = await outcomes([insert('2026-01-01')])
  t.ok(isUnavailable(absent))
  t.match(absent, { cause: { code: '23514' } }, 'and says why')
  await sql`create table all_days partition of by_day default`
  const [old] = await outcomes([insert('1999-01-01')])
  t.ok(old instanceof Error && !isUnavailable(old))
})

t.test('of two changes that wait for each other the one that Postgres ends is Unavailable', async (t) => {
  const pool = open(t, { max: 2, timeoutMs: 10_000 })
  const sql = openDatabase(t, server.url)
  await sql`create table places (id int primary key, free int)`
  await sql`insert into places values (1, 0), (2, 0)`
  const take = (sql: postgres.ISql, id: number) => sql`update places set free = free + 1 where id = ${id}`
  let begun = 0
  const both = [[1, 2] as const, [2, 1] as const].map(([first, second]) =>
    pool.run(async (sql) => {
      await sql`begin`
      await take(sql, first)
      begun++
      await until('both have one', () => begun === 2)
      await take(sql, second).catch(async (error) => {
        await sql`rollback`
        throw error
      })
      await sql`commit`
    }),
  )
  const errors = (await outcomes(both)).filter((error) => error !== null)
  t.strictSame(errors.map(isUnavailable), [true])
})

t.test('closing lets what is under way finish', async (t) => {
  const pool = open(t, { timeoutMs: 10_000 })
  const working = pool.run(async (sql) => (await sql`select pg_sleep(0.2), 7 as seven`)[0]!.seven)
  await untilAsleep(t)
  await pool.close()
  t.equal(await working, 7)
})

t.test('a closed pool opens no connection again, not even for one that ends meanwhile', async (t) => {
  const look = openDatabase(t, server.url)
  const pool = open(t, { purpose: 'closed', timeoutMs: 30_000 })
  const asleep = pool.run((sql) => sql`select pg_sleep(30)`)
  asleep.catch(() => {})
  await untilAsleep(t)
  const closed = pool.close()
  await look`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'latchkey closed'`
  await closed
  await t.rejects(asleep)
  await t.rejects(ask(pool))
})

t.test('closing leaves no connection open, even to a server that hangs', async (t) => {
  const network = await startTcpProxy(t, server.url)
  const hanging = postgresAt(network.url)
  await hanging.connect({ connect_timeout: 10 })`select`
  network.blackHole()
  await hanging.close()
  await until('none is open', () => hanging.openConnections() === 0, 10_000)
})

t.test('closing ends a connection that is still being opened', async (t) => {
  const silent = await startOddPort(t, 'accepts and says nothing')
  const opening = postgresAt(`${silent.url}?sslmode=require`)
  opening.connect({ connect_timeout: 60 })`select`.catch(() => {})
  await until('it is asked for TLS', () => silent.accepted === 1)
  await opening.close()
  await until('it is closed', () => silent.open === 0, 10_000)
})

t.test('the name of a database may have any letters', async (t) => {
  const name = 'ö n% 1'
  const admin = openDatabase(t, server.url)
  await admin`create database ${admin(name)}`
  const url = new URL(server.url)
  url.pathname = encodeURIComponent(name)
  const pool = open(t, { url: url.href })
  t.strictSame([...(await pool.run((sql) => sql`select current_database() as name`))], [{ name }])
})

t.test('an operator sees in pg_stat_activity what a connection is for', async (t) => {
  const pool = open(t, { purpose: 'lookups' })
  const [row] = await pool.run((sql) => sql`select current_setting('application_name') as name`)
  t.match(row!.name, /latchkey.*lookups/)
})

/** Ends a pool's connections on the server's side, as an operator or a pooler in between does. */
function ending(t: Test, purpose: string) {
  const sql = openDatabase(t, server.url, 4)
  return async () => {
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name like ${`%${purpose}`} and pid <> pg_backend_pid()`
  }
}

t.test('a statement whose connection ends is Unavailable', async (t) => {
  const pool = open(t, { purpose: 'middle', max: 1, timeoutMs: 20_000 })
  const statement = outcomes([pool.run((sql) => sql`select pg_sleep(10)`)])
  await untilAsleep(t)
  await ending(t, 'middle')()
  t.ok((await statement).every(isUnavailable))
  await untilAnswered(pool)
})

t.test('a statement ends at once when its connection is reset, and so do the next ones', async (t) => {
  const network = await startTcpProxy(t, server.url)
  const pool = open(t, { url: network.url, max: 1, timeoutMs: 30_000 })
  await untilAnswered(pool)
  for (let round = 0; round < 30; round++) {
    network.cut()
    for (let turn = 0; turn < round % 6; turn++) await nextTurn()
    let errors: unknown[]
    do {
      errors = await outcomes([ask(pool), ask(pool)])
      t.strictSame(
        errors.filter((error) => /no answer in/.test(String(error))),
        [],
      )
    } while (!errors.includes(null))
  }
})

for (const { max, timeoutMs } of [
  { max: 2, timeoutMs: 1000 },
  { max: 1, timeoutMs: 5000 },
]) {
  t.test(`a pool of ${max} works again however often its connections end`, async (t) => {
    const purpose = `often ${max}`
    const end = ending(t, purpose)
    const pool = open(t, { purpose, max, timeoutMs })
    for (let round = 0; round < 6; round++) {
      const works = times(12, (n) => (n % 3 ? ask(pool) : pool.run((sql) => sql`select pg_sleep(0.005)`)))
      const ended = outcomes(works)
      await pause(round % 5)
      await end()
      const wrong = (await ended).filter((error) => error !== null && !isUnavailable(error))
      t.strictSame(wrong, [])
      await untilAnswered(pool)
    }
  })
}

t.test('while commits hang, connections do not pile up at the server', async (t) => {
  const look = openDatabase(t, server.url, 4)
  const setStandby = async (name: string) => {
    await look`alter system set synchronous_standby_names = ${look.unsafe(`'${name}'`)}`
    await look`select pg_reload_conf()`
  }
  const connections = async () => {
    const [row] = await look`select count(*)::int from pg_stat_activity
      where application_name = 'latchkey hanging'`
    return row!.count as number
  }
  await look`create table written (id int)`
  const max = 4
  const pool = open(t, { purpose: 'hanging', max })
  const write = (lane = 'writes') => pool.change((sql) => sql`insert into written values (1)`, lane)
  await until('it writes', async () => (await outcomes([write()]))[0] === null)

  t.teardown(() => setStandby(''))
  await setStandby('gone')
  await until('commits hang', async () => isUnavailable((await outcomes([write()]))[0]))
  for (let round = 0; round < 8; round++) {
    const writes = outcomes(['writes', 'writes', 'more', 'more'].map(write))
    t.strictSame(await outcomes([ask(pool, 'reads')]), [null], 'a read succeeds meanwhile')
    t.ok((await writes).every(isUnavailable))
  }
  const most = await connections()
  t.ok(most <= max * 3, `${most} connections`)

  await setStandby('')
  await until('it writes again', async () => (await outcomes([write()]))[0] === null, 5000)
  await until('the server is rid of the old ones', async () => (await connections()) <= max)
})

/** One try in 200 ms for each connection; a pool that is replaced tries at once. */
const triesMax = (sinceMs: number) => max * (2 + (performance.now() - sinceMs) / 100)

const oddPorts: [habit: Habit, why: RegExp][] = [
  ['speaks HTTP', /not Postgres/],
  ['speaks first, as MySQL does', /not Postgres/],
  ['accepts and closes', /closed the connection|ECONNRESET/],
  ['accepts and says nothing', /no answer in 500 ms/],
]
for (const [habit, why] of oddPorts) {
  t.test(`a port that ${habit} is Unavailable, without a storm of connections`, async (t) => {
    const port = await startOddPort(t, habit)
    const pool = open(t, { url: port.url })
    const startMs = performance.now()
    for (let i = 0; i < 20 && performance.now() - startMs < 800; i++) {
      const errors = await outcomes(times(3, () => ask(pool)))
      t.ok(errors.every(isUnavailable), `${errors}`)
      if (i === 0) t.match((errors[0] as Error).message, why)
      await pause(20)
    }
    t.ok(port.accepted <= triesMax(startMs), `${port.accepted} connections`)
    port.leadTo(server.port)
    await untilAnswered(pool)
  })
}

t.test('what a server that is not Postgres says is not printed', async (t) => {
  // To postgres.js, a whole message that it does not know.
  const odd = createServer((socket) => socket.on('error', () => {}).write('x\0\0\0\x04'))
  t.teardown(() => odd.close())
  await once(odd.listen(0, '127.0.0.1'), 'listening')
  const printed = t.capture(console, 'error')
  const { port } = odd.address() as AddressInfo
  await t.rejects(ask(open(t, { url: `postgres://postgres@127.0.0.1:${port}/postgres` })), {
    message: /not Postgres/,
  })
  t.strictSame(printed(), [])
})

t.test('a server that never completes the connection is reported in words', async (t) => {
  const port = await startOddPort(t, 'accepts and says nothing')
  const [error] = await outcomes([ask(open(t, { url: port.url, timeoutMs: 10_000 }))])
  t.equal((error as Error).message, 'Postgres (test): no answer in time')
})

t.test('a host whose name cannot be resolved is Unavailable', async (t) => {
  for (const code of ['EAI_AGAIN', 'ENOTFOUND']) {
    const fails = (_host: string, _options: object, done: (error: Error) => void) =>
      setImmediate(done, Object.assign(new Error(`getaddrinfo ${code} db.example`), { code }))
    t.intercept(dns, 'lookup', { value: fails })
    const pool = open(t, { url: 'postgres://db.example/latchkey' })
    await t.rejects(ask(pool), { constructor: Unavailable, message: RegExp(code) })
  }
})

t.test('a connection has no time limit of our own', async (t) => {
  const pool = open(t, { url: `${server.url}?max_lifetime=0.1`, max: 1, timeoutMs: 10_000 })
  const backend = () => pool.run(async (sql) => (await sql`select pg_backend_pid() as pid`)[0]!.pid)
  const before = await backend()
  await pause(300)
  t.equal(await backend(), before)
})

const severalAt = (ports: (number | string)[]) =>
  `postgres://postgres@several/postgres?host=127.0.0.1,127.0.0.1&port=${ports.join()}`

t.test('of several hosts, the same is used again after a connection that worked has ended', async (t) => {
  const ports = await Promise.all(times(2, () => startOddPort(t, 'accepts and closes')))
  for (const port of ports) port.leadTo(server.port)
  const url = severalAt(ports.map(({ url }) => new URL(url).port))
  const pool = open(t, { url, purpose: 'loyal', timeoutMs: 10_000 })
  const end = ending(t, 'loyal')
  for (let round = 0; round < 4; round++) {
    await untilAnswered(pool)
    await end()
  }
  await untilAnswered(pool)
  t.strictSame([ports[0]!.accepted >= 5, ports[1]!.accepted], [true, 0])
})

const portInUse = (pool: Pool) => pool.run(async (sql) => Number((await sql`show port`)[0]!.port))

t.test('of several hosts, one that takes no writes is left for the next', async (t) => {
  const pool = open(t, { url: severalAt([standby.port, server.port]), timeoutMs: 10_000 })
  t.equal(await portInUse(pool), standby.port)
  await until('the other is used', async () => (await portInUse(pool)) === server.port)
})

t.test('a connection that takes writes is not replaced, whatever an old one says later', async (t) => {
  const pool = open(t, { url: severalAt([standby.port, server.port]), timeoutMs: 10_000 })
  let endLate = () => {}
  const late = pool.run(async (sql, noteReadOnly) => {
    const [row] = await sql`show port`
    await new Promise<void>((resolve) => {
      endLate = resolve
    })
    noteReadOnly()
    return Number(row!.port)
  })
  await until('the other is used', async () => (await portInUse(pool)) === server.port)
  endLate()
  t.equal(await late, standby.port)
  const backend = () => pool.run(async (sql) => (await sql`select pg_backend_pid() as pid`)[0]!.pid)
  const before = await backend()
  // As long as two searches would take, one of which finds this server.
  for (let n = 0; n < 16; n++) {
    await pause(100)
    t.equal(await backend(), before)
  }
})

t.test(
  'target_session_attrs leads to a host that takes writes, without a storm of connections',
  async (t) => {
    for (const attrs of ['any', 'read-write', 'primary']) {
      const old = await startOddPort(t, 'accepts and closes')
      old.leadTo(standby.port, asPostgres13)
      const hosts = severalAt([new URL(old.url).port, server.port])
      const pool = open(t, { url: `${hosts}&target_session_attrs=${attrs}`, timeoutMs: 10_000 })
      const startMs = performance.now()
      const write = () => pool.run((sql) => sql`create table if not exists led_here (id int)`)
      await until('it writes', async () => (await outcomes([write()]))[0] === null, 15_000)
      t.ok(old.accepted <= triesMax(startMs), `${old.accepted} connections`)
    }
    const url = `${server.url}?target_session_attrs=standby`
    t.throws(() => open(t, { url }), {
      message: /^target_session_attrs in DATABASE_URL must be one of any, /,
    })
  },
)

t.test('PGTARGETSESSIONATTRS changes nothing', async (t) => {
  const name = 'PGTARGETSESSIONATTRS'
  t.teardown(() => delete process.env[name])
  for (const attrs of ['any', 'standby']) {
    process.env[name] = attrs
    const pool = open(t, { timeoutMs: 10_000 })
    t.equal(process.env[name], attrs, 'it stays for others in this process')
    t.equal(await portInUse(pool), server.port)
  }
})

/** As a command opens them. */
async function openAt(t: Test, url: string, signal?: AbortSignal) {
  const config = readConfig({ DATABASE_URL: url, HASH_SECRET: 'thirty-two characters, or some more' })
  const stores = await openStores(config, { role: 'command', ...(signal && { signal }) })
  t.teardown(() => stores.close())
  return stores
}

t.test('of several hosts, a command and missing migrations use one that takes writes', async (t) => {
  const name = 'not_migrated'
  for (const { url } of [server, standby]) {
    const sql = openDatabase(t, `${url}?default_transaction_read_only=off`)
    await sql`create database ${sql(name)}`
  }
  const url = severalAt([standby.port, server.port])
  for (const at of [url, url.replace('/postgres?', `/${name}?`)]) {
    const { users } = await openAt(t, at)
    const created = await users.create({ id: newId('usr_'), name: 'Ada' }, actor())
    t.ok(created.ok)
  }
  const { searchParams } = new URL(await writableFirst(url, { ssl: {}, timeoutMs: 20_000 }))
  t.equal(searchParams.get('port'), `${server.port},${standby.port}`, 'the other one stays, as the second')
  for (const { url } of [server, standby]) {
    const look = openDatabase(t, url)
    await until('no search keeps its connection', async () => {
      const open = await look`select from pg_stat_activity where application_name = 'latchkey search'`
      return open.length === 0
    })
  }
  const [finding] = await examinePostgres({
    url,
    ssl: {},
    secretId: null,
    previousSecretId: null,
    tokenPrefix: 'lk',
    connectionsMax: 1,
  })
  t.match(finding, { about: 'Postgres', state: 'ok' })
})

t.test('of several hosts that take no writes, a command reads from the first', async (t) => {
  const { users } = await openAt(t, severalAt([standby.port, standby.port]))
  t.equal(await users.get('usr_absent'), null)
  const creating = users.create({ id: newId('usr_'), name: 'Ada' }, actor())
  t.ok((await outcomes([creating])).every(isUnavailable))
})

t.test('of several hosts, the search for one that takes writes stops at a signal', async (t) => {
  const ports = await Promise.all(times(2, () => startOddPort(t, 'accepts and says nothing')))
  const stopping = new AbortController()
  const opening = openAt(t, severalAt(ports.map(({ url }) => new URL(url).port)), stopping.signal)
  const rejected = t.rejects(opening, { name: 'AbortError' })
  await until('the first is asked', () => ports[0]!.accepted === 1)
  stopping.abort()
  await rejected
  t.equal(ports[1]!.accepted, 0)
})

t.test('of several hosts, look-ups leave one that takes no writes and does not say so', async (t) => {
  const old = await startOddPort(t, 'accepts and closes')
  old.leadTo(standby.port, asPostgres13)
  const url = severalAt([new URL(old.url).port, server.port])
  const { keys } = storesOn(open(t, { url, timeoutMs: 10_000 }))
  const role = async () => (await keys.findByHash(['00'.repeat(32)])).role
  t.equal(await role(), 'read_only')
  await until('the other is used', async () => (await role()) === 'primary', 10_000)
})

t.test('of several hosts, a standby keeps answering while the primary does not', async (t) => {
  const primary = await startOddPort(t, 'accepts and says nothing')
  const url = severalAt([new URL(primary.url).port, standby.port])
  const pool = open(t, { url, max: 1, timeoutMs: 1000 })
  await untilAnswered(pool)
  const before = primary.accepted
  const startMs = performance.now()
  const wrong: unknown[] = []
  await until('the primary was tried twice', async () => {
    wrong.push(...(await outcomes([ask(pool)])).filter((error) => error !== null))
    return primary.accepted >= before + 2
  })
  t.strictSame(wrong, [])
  t.ok(performance.now() - startMs > 2000, 'not while the first try goes on')
  primary.leadTo(server.port)
  await until('the primary is used', async () => (await portInUse(pool)) === server.port)
})

t.test('of several hosts the first that answers is used, and while none does there are pauses', async (t) => {
  const ports = await Promise.all(times(2, () => startOddPort(t, 'accepts and closes')))
  const url = severalAt(ports.map(({ url }) => new URL(url).port))
  const pool = open(t, { url, purpose: 'odd' })
  const startMs = performance.now()
  for (let i = 0; i < 3; i++) await t.rejects(ask(pool), { message: /^Postgres \(odd\): / })
  const accepted = ports.reduce((sum, port) => sum + port.accepted, 0)
  t.ok(accepted <= 2 * triesMax(startMs), `${accepted} connections`)
  ports[1]!.leadTo(server.port)
  await untilAnswered(pool)
})
