// Migrations on real databases: once each, completely or not at all, by any number of instances at
// once.
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer } from 'node:net'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { migrate } from '../../src/postgres/migrate.ts'
import { compareSchema, readMigrations } from '../../src/postgres/migrations.ts'
import { dropAuditPartitions, dropUsagePartitions, ensurePartitions } from '../../src/postgres/partitions.ts'
import { until } from '../process/until.ts'
import { openDatabase, useServices } from '../services/index.ts'

const services = await useServices(t)

/** An empty database. */
async function empty(t: Test) {
  const url = await services.createDatabase()
  return { url, sql: openDatabase(t, url, 4) }
}

/** An empty database that has this setting. */
async function emptyWith(t: Test, setting: string, value: string) {
  const { url, sql } = await empty(t)
  const name = new URL(url).pathname.slice(1)
  await sql`alter database ${sql(name)} set ${sql(setting)} to ${sql.unsafe(`'${value}'`)}`
  return url
}

/** The database's URL behind a proxy that changes what is sent to it. */
async function behind(t: Test, url: string, change: (piece: Buffer) => Buffer | Promise<Buffer>) {
  const server = createServer((client) => {
    const { hostname, port } = new URL(url)
    const upstream = connect(Number(port), hostname)
    upstream.pipe(client).on('close', () => upstream.destroy())
    client.on('data', async (piece) => {
      client.pause()
      upstream.write(await change(piece))
      client.resume()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  return Object.assign(new URL(url), { host: `127.0.0.1:${port}` }).href
}

/** Creates the partitions of the database's UTC days, 0 being today. */
const createDays = (sql: Sql, from: number, to: number, parent = 'audit_refusals') => sql`
  select create_day_partitions(${parent}, today + ${from}::int, today + ${to}::int)
  from (select (now() at time zone 'UTC')::date as today) as day`

type Sql = ReturnType<typeof openDatabase>

async function tablesOf(sql: Sql, schema = 'public'): Promise<string[]> {
  const rows = await sql`select relname from pg_class c join pg_namespace n on n.oid = relnamespace
    where nspname = ${schema} and relkind in ('r', 'p') order by 1`
  return rows.map(({ relname }) => relname)
}

const partitionsOf = async (sql: Sql, schema?: string) =>
  (await tablesOf(sql, schema)).filter((name) => /^audit_refusals_\d{8}$/.test(name))

/** The partitions of the database's UTC days, 0 being today. */
async function days(sql: Sql, from: number, to: number): Promise<string[]> {
  const rows = await sql`
    select 'audit_refusals_' || to_char((now() at time zone 'UTC')::date + n, 'YYYYMMDD') as name
    from generate_series(${from}::int, ${to}::int) n order by n`
  return rows.map(({ name }) => name)
}

const untilDisconnected = (sql: Sql) =>
  until('no migration keeps its connection', async () => {
    const open = await sql`
      select from pg_stat_activity where datname = current_database() and application_name = 'latchkey migrate'`
    return open.length === 0
  })

const insertRefusal = (sql: Sql, row: object) =>
  sql`insert into audit_log ${sql({ id: 'aud_1', request_id: 'req_1', event: 'auth.refused', reason: 'revoked', ...row })}`

t.test('no migration is edited once it is out: a database that has it would be refused', async (t) => {
  const checksums = JSON.parse(await readFile(new URL('checksums.json', import.meta.url), 'utf8'))
  const files = await readMigrations()
  t.strictSame(
    Object.fromEntries(files.map(({ version, name, md5 }) => [`${version} ${name}`, md5])),
    checksums,
    'a new one is added to checksums.json',
  )
})

t.test('instances that start together on an empty database migrate it once', async (t) => {
  const { url, sql } = await empty(t)
  const applied = await Promise.all([migrate(url), migrate(url), migrate(url)])
  const [all = [], ...others] = applied.sort((a, b) => b.length - a.length)
  t.ok(all.length > 0 && all.every(({ version, name }) => Number.isInteger(version) && name !== ''))
  t.strictSame(others, [[], []], 'one of them did it all')
  const made = await tablesOf(sql)
  for (const table of ['users', 'api_keys', 'audit_log']) t.ok(made.includes(table), table)
  t.strictSame(await partitionsOf(sql), await days(sql, 0, 7), 'today and seven days ahead')
  await untilDisconnected(sql)

  await t.test('a database that is up to date is left as it is', async (t) => {
    await sql`insert into users (id, name) values ('usr_1', 'kept')`
    t.strictSame(await migrate(url), [])
    t.strictSame(await tablesOf(sql), made)
    t.equal((await sql`select 1 from users`).length, 1)
  })

  await t.test('a database that a later version has migrated is left as it is', async (t) => {
    await sql`insert into schema_version (version, name, md5) values (9999, 'later', 'x')`
    t.strictSame(await migrate(url), [])
    await sql`delete from schema_version where version = 9999`
  })

  await t.test('a migration that was applied with other comments is accepted', async (t) => {
    const [{ md5 } = {}] = await sql`select md5 from schema_version where version = 30`
    await sql`update schema_version set md5 = 'a42bb5f4f750316484125aa82402c8de' where version = 30`
    t.strictSame(await migrate(url), [])
    await sql`update schema_version set md5 = ${md5} where version = 30`
  })

  await t.test('a migration that was changed after it was applied is refused', async (t) => {
    await sql`update schema_version set md5 = 'another' where version = 4`
    await t.rejects(migrate(url), { message: /migration 4 \(create-key\) was changed/ })
  })
})

t.test('a database of an earlier version gets what it lacks, and keeps its rows', async (t) => {
  const { url, sql } = await empty(t)
  const files = await readMigrations()
  await sql`create table schema_version (version bigint primary key, name text, md5 text, run_at timestamptz)`
  for (const { script, ...file } of files.slice(0, -2)) {
    await sql.unsafe(script)
    await sql`insert into schema_version ${sql(file)}`
  }
  await sql`insert into users (id, name) values ('usr_1', 'kept')`
  const lacking = files.slice(-2).map(({ version, name }) => ({ version, name }))
  t.strictSame(await migrate(url), lacking)
  t.strictSame(await migrate(url), [])
  t.equal((await sql`select from users`).length, 1)
})

t.test('an instance that looks while another one commits the first migration starts, too', async (t) => {
  const { url, sql } = await empty(t)
  await migrate(url)
  await sql`alter table schema_version rename to not_yet`
  let questions = 0
  const late = await behind(t, url, async (piece) => {
    // It has seen no migration, and asks for an installation further back.
    if (piece.includes('current_schemas(') && questions++ === 0)
      await sql`alter table not_yet rename to schema_version`
    return piece
  })
  t.strictSame(await migrate(late, { timeoutMs: 30_000 }), [])
  t.equal(questions, 1)
})

t.test('while another instance migrates one waits, until it is stopped', async (t) => {
  const { url, sql } = await empty(t)
  const stop = new AbortController()
  let waits = 0
  const onWait = () => {
    waits++
  }
  const { waiting } = await sql.begin(async (tx) => {
    await tx`select pg_advisory_xact_lock(7231906)`
    const stopped = migrate(url, { signal: stop.signal, onWait })
    stopped.catch(() => {})
    const waiting = migrate(url, { onWait })
    await until('both wait', () => waits === 2)
    stop.abort(new Error('stopped'))
    await t.rejects(stopped, { message: 'stopped' })
    return { waiting }
  })
  t.ok((await waiting).length > 0)
  t.equal(waits, 2, 'said once')
})

t.test('a migration that needs a table in use waits between tries, so nobody waits behind it', async (t) => {
  const { url, sql } = await empty(t)
  await sql`create table schema_version (version bigint primary key, name text, md5 text, run_at timestamptz)`
  const waits: string[] = []
  const onWait = (whatFor: string) => waits.push(whatFor)
  const stop = new AbortController()
  const { migrating } = await sql.begin(async (tx) => {
    await tx`lock table schema_version in share mode`
    const [me] = await tx`select pg_backend_pid() as pid`
    const standsSince = async (): Promise<number | undefined> => {
      const [waiting] = await sql`
        select extract(epoch from waitstart)::float8 as s from pg_locks
        where not granted and ${me!.pid} = any (pg_blocking_pids(pid))`
      return waiting?.s ?? undefined
    }
    const stopped = migrate(url, { signal: stop.signal })
    stopped.catch(() => {})
    await until('it waits for the table', standsSince)
    stop.abort(new Error('stopped'))
    await t.rejects(stopped, { message: 'stopped' })

    const migrating = [migrate(url, { onWait })]
    let lastS = 0
    for (const attempt of ['the first', 'the second', 'the next']) {
      const sinceS = await until(`${attempt} try waits`, standsSince)
      t.ok(sinceS - lastS > 2, 'others have had their turn')
      if (attempt === 'the second') migrating.push(migrate(url))
      await until(`${attempt} try gives up`, async () => (await standsSince()) === undefined)
      lastS = sinceS
    }
    return { migrating: Promise.all(migrating) }
  })
  t.equal((await migrating).flat().length, (await readMigrations()).length)
  t.equal(waits[0], 'tables')
  t.equal(new Set(waits).size, waits.length, 'each is said once')
})

t.test('a database with another encoding is refused before anything is in it', async (t) => {
  const { url, sql } = await empty(t)
  const name = `${new URL(url).pathname.slice(1)}_ascii`
  await sql`create database ${sql(name)} encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0`
  t.teardown(() => sql`drop database ${sql(name)} with (force)`)
  const ascii = Object.assign(new URL(url), { pathname: `/${name}` }).href
  await t.rejects(migrate(ascii), { message: /the encoding SQL_ASCII; create it with encoding 'UTF8'$/ })
  t.strictSame(await tablesOf(openDatabase(t, ascii)), [])
})

t.test('a migration that fails leaves nothing half-done', async (t) => {
  const { url, sql } = await empty(t)
  await sql`create table audit_log (in_the_way int)`
  await t.rejects(migrate(url))
  await untilDisconnected(sql)
  t.strictSame(await tablesOf(sql), ['audit_log'])
  await sql`drop table audit_log`
  t.ok((await migrate(url)).length > 0, 'and can be tried again')
})

for (const zone of ['Pacific/Kiritimati', 'Pacific/Pago_Pago']) {
  t.test(`partitions begin and end at midnight UTC on a database in ${zone}`, async (t) => {
    const url = await emptyWith(t, 'timezone', zone)
    await migrate(url)
    const sql = openDatabase(t, url, 4)
    t.equal((await sql`show timezone`)[0]!.TimeZone, zone)
    const expected = await days(sql, 0, 7)
    t.strictSame(await partitionsOf(sql), expected)
    const insert = (day: number, time: string) => sql`
      insert into audit_log (id, request_id, event, reason, occurred_at)
      values (${`aud_${day}${time}`}, 'req_1', 'auth.refused', 'revoked',
        ((now() at time zone 'UTC')::date + ${day}::int + ${time}::time) at time zone 'UTC')
      returning tableoid::regclass::text as partition`
    t.strictSame([...(await insert(0, '00:00:00'))], [{ partition: expected[0] }])
    t.strictSame([...(await insert(0, '23:59:59.999999'))], [{ partition: expected[0] }])
    t.strictSame([...(await insert(7, '23:59:59.999999'))], [{ partition: expected[7] }])
    await t.rejects(insert(8, '00:00:00'), { code: '23514' })
    const ofUsage = (names: string[]) => names.map((name) => name.replace('audit_refusals', 'key_usage'))
    const usage = (await tablesOf(sql)).filter((name) => /^key_usage_\d{8}$/.test(name))
    t.strictSame(usage, ofUsage(await days(sql, -1, 7)), 'a minute may be stored after midnight')

    const past = await days(sql, -3, -1)
    for (const parent of ['audit_refusals', 'key_usage']) await createDays(sql, -3, -1, parent)
    t.strictSame(await dropAuditPartitions(sql, 2), past.slice(0, 1))
    t.strictSame(await dropUsagePartitions(sql, 2), ofUsage(past.slice(0, 1)))
  })
}

for (const style of ['SQL, YMD', 'Postgres, YMD', 'German, YMD', 'German, MDY']) {
  t.test(`partitions are created and dropped on a database with the DateStyle ${style}`, async (t) => {
    const url = await emptyWith(t, 'datestyle', style)
    await migrate(url)
    const sql = openDatabase(t, url, 4)
    t.equal((await sql`show datestyle`)[0]!.DateStyle, style)
    t.strictSame(await partitionsOf(sql), await days(sql, 0, 7))
    const past = await days(sql, -3, -1)
    await createDays(sql, -3, -1)
    t.strictSame(await dropAuditPartitions(sql, 2), past.slice(0, 1))
  })
}

t.test('a name needs no capital S on a database without standard_conforming_strings', async (t) => {
  const url = await emptyWith(t, 'standard_conforming_strings', 'off')
  await migrate(url)
  const sql = openDatabase(t, url)
  await sql`insert into users (id, name, external_id) values ('usr_1', 'ann', 'crm-7')`
  await t.rejects(sql`insert into users (id, name) values ('usr_2', ' ')`, {
    message: /user_name_is_not_blank/,
  })
})

t.test('a statement_timeout of the database does not end a migration', async (t) => {
  t.not((await migrate(await emptyWith(t, 'statement_timeout', '5ms'))).length, 0)
})

t.test('partitions of a migrated database', async (t) => {
  const { url, sql } = await empty(t)
  await migrate(url)
  const ahead = await days(sql, 0, 7)

  await t.test('several instances may create what is missing while entries are written', async (t) => {
    for (const name of ahead.slice(2)) await sql`drop table ${sql(name)}`
    const ensure = () => sql.begin((tx) => ensurePartitions(tx))
    const write = (n: number) => insertRefusal(sql, { id: `aud_${n}` })
    await Promise.all([ensure(), write(1), ensure(), write(2), ensure(), write(3)])
    t.strictSame(await partitionsOf(sql), ahead)
    t.equal((await sql`delete from audit_log`).count, 3)
  })

  await t.test('only those are dropped whose every entry is too old', async (t) => {
    const past = await days(sql, -5, -1)
    for (const [i, name] of past.entries()) {
      const day = name.replace(/^audit_refusals_(....)(..)(..)$/, '$1-$2-$3')
      await sql.unsafe(`create table ${name} partition of audit_refusals
        for values from ('${day} 00:00:00+00') to ('${day} 23:59:59.9999+00')`)
      await insertRefusal(sql, { request_id: `req_${5 - i}`, occurred_at: `${day} 23:00:00+00` })
    }
    await sql`create table audit_refusals_archive (like audit_refusals)`
    await sql`create table audit_refusals_20200101 (not_a_partition int)`

    const drop = () => sql.begin((tx) => dropAuditPartitions(tx, 2))
    t.strictSame(await drop(), past.slice(0, 3))
    t.strictSame(await partitionsOf(sql), ['audit_refusals_20200101', ...past.slice(3), ...ahead])
    const rows = await sql`select request_id from audit_log order by 1`
    t.strictSame(
      rows.map(({ request_id }) => request_id),
      ['req_1', 'req_2'],
    )
    t.ok((await tablesOf(sql)).includes('audit_refusals_archive'))
    t.strictSame(await drop(), [], 'nothing is left to drop')
  })

  await t.test('a partition that is being read stays until the next run, and the others go', async (t) => {
    const old = ['2019-01-01', '2019-01-02'].map((day) => ({
      day,
      name: `audit_refusals_${day.replaceAll('-', '')}`,
    }))
    for (const { name, day } of old)
      await sql.unsafe(`create table ${name} partition of audit_refusals
        for values from ('${day} 00:00:00+00') to ('${day} 23:59:59+00')`)
    const drop = () =>
      sql.begin(async (tx) => {
        await tx`set local statement_timeout = '10s'`
        return dropAuditPartitions(tx, 30)
      })
    await sql.begin(async (reader) => {
      await reader`lock table ${reader(old[0]!.name)} in access share mode`
      t.strictSame(await drop(), [old[1]!.name])
    })
    t.strictSame(await drop(), [old[0]!.name])
  })

  await t.test('a partition that a view of the operator depends on stays until the next run', async (t) => {
    const [viewed, other] = ['audit_refusals_20190103', 'audit_refusals_20190104'] as const
    for (const [name, day] of [
      [viewed, '2019-01-03'],
      [other, '2019-01-04'],
    ])
      await sql.unsafe(`create table ${name} partition of audit_refusals
        for values from ('${day} 00:00:00+00') to ('${day} 23:59:59+00')`)
    await sql`create view refusals_of_a_day as select * from ${sql(viewed)}`
    const drop = () => sql.begin((tx) => dropAuditPartitions(tx, 30))
    t.strictSame(await drop(), [other])
    await sql`drop view refusals_of_a_day`
    t.strictSame(await drop(), [viewed])
  })

  await t.test('a call gives up after 5 partitions in use, as all are during a backup', async (t) => {
    await createDays(sql, -40, -33)
    let warnings = 0
    const own = postgres(url, { max: 1, onnotice: () => warnings++ })
    t.teardown(() => own.end({ timeout: 1 }))
    await sql.begin(async (backup) => {
      await backup`lock table audit_refusals in access share mode`
      t.strictSame(await dropAuditPartitions(own, 30), [])
    })
    t.equal(warnings, 5)
    t.equal((await dropAuditPartitions(own, 30)).length, 8)
  })

  await t.test('while one instance drops, others start, and leave it to that one', async (t) => {
    await createDays(sql, -40, -40)
    await sql.begin(async (other) => {
      for (const parent of ['audit_refusals', 'key_usage'])
        await other`select pg_advisory_xact_lock(hashtext(${`latchkey partitions of ${parent}`}))`
      t.strictSame(await migrate(url), [])
      t.strictSame(await dropAuditPartitions(sql, 30), [])
      // It reads nothing before it knows, or the two might wait for each other.
      await other`lock table key_usage in access exclusive mode`
      t.strictSame(await dropUsagePartitions(sql, 30), [])
    })
    t.equal((await dropAuditPartitions(sql, 30)).length, 1)
  })

  await t.test('one call drops the 50 oldest: each holds 13 locks until it ends', async (t) => {
    await createDays(sql, -60, -9)
    const old = await days(sql, -60, -9)
    for (const expected of [old.slice(0, 50), old.slice(50), []])
      t.strictSame(await dropAuditPartitions(sql, 8), expected)
  })

  await t.test('the functions themselves create none far ahead and drop none that is young', async (t) => {
    await t.rejects(sql`select ensure_audit_partitions(32)`, { message: /at most 31 days/ })
    await t.rejects(sql`select drop_audit_partitions(0)`, { message: /at least a day/ })
  })

  await t.test(
    'what runs with the rights of its owner is for nobody else, and sees our schema only',
    async (t) => {
      const rows = await sql`
      select proname, proconfig::text as settings, has_function_privilege('pg_monitor', oid, 'execute') as by_others
      from pg_proc where prosecdef and pronamespace = current_schema()::regnamespace`
      t.equal(rows.length, 5)
      for (const { proname, settings, by_others } of rows)
        t.strictSame([settings, by_others], ['{"search_path=public, pg_temp"}', false], proname)
    },
  )
})

t.test("other applications' tables in schemas behind ours are left alone", async (t) => {
  const { url, sql } = await empty(t)
  await sql`create schema app`
  // As Postgrator makes it.
  await sql`create schema theirs`
  await sql`create table theirs.schema_version (version bigint, name text, md5 text, run_at timestamptz)`
  // A name that Flyway has used for its table.
  await sql`create table public.schema_version (installed_rank int primary key, version text)`
  await sql`create table public.users (login text)`
  const [today] = await days(sql, 0, 0)
  await sql`create table ${sql(`public.${today}`)} (id int)`

  const inApp = `${url}?search_path=app,theirs,public`
  t.ok((await migrate(inApp)).length > 0)
  t.strictSame(await migrate(inApp), [])
  t.equal((await sql`select from theirs.schema_version`).length, 0)
  const own = openDatabase(t, inApp, 4)
  t.equal((await own`select current_schema() as name`)[0]!.name, 'app')
  t.strictSame(await partitionsOf(own, 'app'), await days(sql, 0, 7))
  t.strictSame(await tablesOf(sql), [today, 'schema_version', 'users'])
})

t.test('a schema that comes before the one of Latchkey gets no second, empty Latchkey', async (t) => {
  const { url, sql } = await empty(t)
  await migrate(url)
  const role: string = (await sql`select current_user as role`)[0]!.role
  await sql`create schema ${sql(role)}`
  const refused = {
    message: new RegExp(
      `schema "${role}" is first .* Latchkey is in "public": add \\?search_path=public .* \\?search_path=${role}`,
    ),
  }
  await t.rejects(migrate(url), refused)
  await t.rejects(compareSchema(openDatabase(t, url)), refused, 'doctor says the same')
  t.strictSame(await tablesOf(sql, role), [])
  t.strictSame(await migrate(`${url}?search_path=public`), [], 'as it advises')
  t.ok((await migrate(`${url}?search_path=${role}`)).length > 0)
  t.strictSame(await migrate(url), [])
})

t.test('a pooler that drops the search_path of the URL gets no second, empty Latchkey', async (t) => {
  const { url, sql } = await empty(t)
  await sql`create schema latchkey`
  await migrate(`${url}?search_path=latchkey`)
  const pooler = await behind(t, url, (piece) =>
    Buffer.from(piece.toString('latin1').replace('search_path\0', 'other.thing\0'), 'latin1'),
  )
  await t.rejects(migrate(`${pooler}?search_path=latchkey`), {
    message: /the search_path is "\$user", public, because a pooler ignores .* \(latchkey\)/,
  })
  t.strictSame(await tablesOf(sql), [])
  const role: string = (await sql`select current_user as role`)[0]!.role
  const database = new URL(url).pathname.slice(1)
  await sql`alter role ${sql(role)} in database ${sql(database)} set search_path = latchkey`
  t.strictSame(await migrate(pooler), [], 'as it advises')
})

t.test('the search paths that it advises work for every name of a schema', async (t) => {
  const { url, sql } = await empty(t)
  for (const name of ['Latchkey', 'The "first"']) await sql`create schema ${sql(name)}`
  const along = (path: string) => `${url}?search_path=${path}`
  await migrate(along(encodeURIComponent('"Latchkey"')))
  const { message } = await migrate(along(encodeURIComponent('"The ""first""","Latchkey"'))).then(
    () => t.fail('it migrated') as never,
    (error: Error) => error,
  )
  const [, inUse = '', second = ''] = /=(\S+) to the URL, or \?search_path=(\S+) for a second/.exec(message)!
  t.strictSame(await migrate(along(inUse)), [])
  t.ok((await migrate(along(second))).length > 0)
})

t.test('one database can have Latchkey in several schemas, also by ?options=', async (t) => {
  const { url, sql } = await empty(t)
  for (const name of ['one', 'Two, three']) await sql`create schema ${sql(name)}`
  const second = new URL(url)
  second.searchParams.set('options', '-c search_path="Two,\\ three"')
  const urls = [url, `${url}?search_path=one`, second.href]
  for (const one of urls) t.ok((await migrate(one)).length > 0)
  for (const one of urls) t.strictSame(await migrate(one), [])
  const expected = await days(sql, 0, 7)
  for (const name of ['public', 'one', 'Two, three'])
    t.strictSame(await partitionsOf(sql, name), expected, name)

  // Called from another schema, each function acts on its own.
  await sql`drop table ${sql(`one.${expected[7]}`)}`
  await sql`select one.ensure_audit_partitions(7)`
  t.strictSame(await partitionsOf(sql, 'one'), expected)

  const nowhere = { message: /can use none of the schemas in its search_path/ }
  await t.rejects(migrate(`${url}?search_path=nowhere`), nowhere)
})
