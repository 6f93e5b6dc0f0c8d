// Migrations on real databases: once each, whole or not at all, by as many instances at once as there are.
import t, { type Test } from 'tap'
import { migrate } from '../../src/postgres/migrate.ts'
import { dropPartitionsOlderThan, ensurePartitions } from '../../src/postgres/partitions.ts'
import { useServices } from '../services/index.ts'
import { connect } from './open-stores.ts'

const services = await useServices(t)

async function migrated(t: Test) {
  const url = await services.createDatabase()
  await migrate(url)
  return connect(t, url)
}
type Sql = ReturnType<typeof connect>

async function tablesOf(sql: Sql, schema = 'public'): Promise<string[]> {
  const rows = await sql`select relname from pg_class c join pg_namespace n on n.oid = relnamespace
    where nspname = ${schema} and relkind in ('r', 'p') order by 1`
  return rows.map(({ relname }) => relname)
}

const partitionsOf = async (sql: Sql, schema?: string) =>
  (await tablesOf(sql, schema)).filter((name) => /^audit_refusals_\d{8}$/.test(name))

/** The database's UTC days from today on, as partitions are named. */
async function days(sql: Sql, from: number, to: number): Promise<string[]> {
  const rows = await sql`
    select 'audit_refusals_' || to_char((now() at time zone 'UTC')::date + n, 'YYYYMMDD') as name
    from generate_series(${from}::int, ${to}::int) n order by n`
  return rows.map(({ name }) => name)
}

t.test('instances that start together on an empty database migrate it once', async (t) => {
  const url = await services.createDatabase()
  const applied = await Promise.all([migrate(url), migrate(url), migrate(url)])
  const counts = applied.map(({ length }) => length).sort()
  t.ok(counts[2]! > 0)
  t.strictSame(counts.slice(0, 2), [0, 0], 'one of them did it all')
  const sql = connect(t, url)
  const made = await tablesOf(sql)
  for (const table of ['users', 'api_keys', 'audit_log']) t.ok(made.includes(table), table)
})

t.test('a database that is up to date is left as it is', async (t) => {
  const url = await services.createDatabase()
  const applied = await migrate(url)
  t.ok(applied.every(({ version, name }) => Number.isInteger(version) && name !== ''))
  const sql = connect(t, url)
  await sql`insert into users (id, name) values ('usr_1', 'kept')`
  const before = await tablesOf(sql)
  t.strictSame(await migrate(url), [])
  t.strictSame(await tablesOf(sql), before)
  t.equal((await sql`select 1 from users`).length, 1)
})

t.test('a migration that fails leaves nothing half-made', async (t) => {
  const url = await services.createDatabase()
  const sql = connect(t, url)
  await sql`create table audit_log (in_the_way int)`
  await t.rejects(migrate(url))
  t.strictSame(await tablesOf(sql), ['audit_log'])
  await sql`drop table audit_log`
  t.ok((await migrate(url)).length > 0, 'and can be tried again')
})

t.test('there are partitions for today and seven days ahead, by UTC', async (t) => {
  const sql = await migrated(t)
  t.strictSame(await partitionsOf(sql), await days(sql, 0, 7))
})

for (const zone of ['Pacific/Kiritimati', 'Pacific/Pago_Pago']) {
  t.test(`partitions begin and end at midnight UTC on a database in ${zone}`, async (t) => {
    const url = await services.createDatabase()
    const setting = connect(t, url)
    const name = new URL(url).pathname.slice(1)
    await setting`alter database ${setting(name)} set timezone to ${setting.unsafe(`'${zone}'`)}`
    await migrate(url)
    const sql = connect(t, url)
    t.equal((await sql`show timezone`)[0]!.TimeZone, zone)
    t.strictSame(await partitionsOf(sql), await days(sql, 0, 7))
    const insert = (day: number, time: string) => sql`
      insert into audit_log (id, request_id, event, reason, occurred_at)
      values (${`aud_${day}${time}`}, 'req_1', 'auth.refused', 'revoked',
        ((now() at time zone 'UTC')::date + ${day}::int + ${time}::time) at time zone 'UTC')
      returning tableoid::regclass::text as partition`
    const [today, , , , , , , last] = await days(sql, 0, 7)
    t.strictSame([...(await insert(0, '00:00:00'))], [{ partition: today }])
    t.strictSame([...(await insert(0, '23:59:59.999999'))], [{ partition: today }])
    t.strictSame([...(await insert(7, '23:59:59.999999'))], [{ partition: last }])
    await t.rejects(insert(8, '00:00:00'), { code: '23514' })
  })
}

t.test(
  'partitions that are missing are made, by several at once too, while entries are written',
  async (t) => {
    const sql = await migrated(t)
    const expected = await days(sql, 0, 7)
    for (const name of expected.slice(2)) await sql`drop table ${sql(name)}`
    const ensure = () => sql.begin((tx) => ensurePartitions(tx))
    const write = (n: number) =>
      sql`insert into audit_log (id, request_id, event, reason) values (${`aud_${n}`}, 'req_1', 'auth.refused', 'revoked')`
    await Promise.all([ensure(), write(1), ensure(), write(2), ensure(), write(3)])
    t.strictSame(await partitionsOf(sql), expected)
    t.equal((await sql`select 1 from audit_log`).length, 3)
  },
)

t.test('of the partitions only those are dropped whose every entry is too old', async (t) => {
  const sql = await migrated(t)
  const kept = await days(sql, 0, 7)
  const [old5, old4, old3, old2, old1] = await days(sql, -5, -1)
  for (const [i, name] of [old5, old4, old3, old2, old1].entries()) {
    await sql.unsafe(`create table ${name} partition of audit_refusals
      for values from ('${isoDay(name!)} 00:00:00+00') to ('${isoDay(name!)} 23:59:59.9999+00')`)
    await sql`insert into audit_log (id, request_id, event, reason, occurred_at)
      values ('aud_1', ${`req_${5 - i}`}, 'auth.refused', 'revoked', ${`${isoDay(name!)} 23:00:00+00`}::timestamptz)`
  }
  await sql`create table audit_refusals_archive (like audit_refusals)`
  await sql`create table audit_refusals_20200101 (not_a_partition int)`

  const dropped = await sql.begin((tx) => dropPartitionsOlderThan(tx, 2))
  t.strictSame(dropped, [old5, old4, old3])
  t.strictSame(await partitionsOf(sql), ['audit_refusals_20200101', old2, old1, ...kept])
  const rows = await sql`select request_id from audit_log order by 1`
  t.strictSame(
    rows.map(({ request_id }) => request_id),
    ['req_1', 'req_2'],
  )
  t.ok((await tablesOf(sql)).includes('audit_refusals_archive'))
  t.strictSame(await sql.begin((tx) => dropPartitionsOlderThan(tx, 2)), [], 'nothing is left to drop')
})

const isoDay = (name: string) => name.replace(/^audit_refusals_(....)(..)(..)$/, '$1-$2-$3')

t.test("another application's tables in a schema behind ours are left alone", async (t) => {
  const url = await services.createDatabase()
  const sql = connect(t, url)
  await sql`create schema app`
  // Flyway has called its table so.
  await sql`create table public.schema_version (installed_rank int primary key, version text)`
  await sql`create table public.users (login text)`
  const [today] = await days(sql, 0, 0)
  await sql`create table ${sql(`public.${today}`)} (id int)`

  const inApp = `${url}?search_path=app,public`
  t.ok((await migrate(inApp)).length > 0)
  t.strictSame(await migrate(inApp), [])
  const own = connect(t, inApp)
  t.equal((await own`select current_schema() as name`)[0]!.name, 'app')
  t.strictSame(await partitionsOf(own, 'app'), await days(sql, 0, 7))
  t.strictSame(await tablesOf(sql), [today, 'schema_version', 'users'])
})

t.test('one database takes Latchkey in several schemas, also by ?options=', async (t) => {
  const url = await services.createDatabase()
  const sql = connect(t, url)
  for (const name of ['one', 'Two, three']) await sql`create schema ${sql(name)}`
  const second = new URL(url)
  second.searchParams.set('options', '-c search_path="Two,\\ three"')
  const urls = [url, `${url}?search_path=one`, second.href]
  for (const one of urls) t.ok((await migrate(one)).length > 0)
  for (const one of urls) t.strictSame(await migrate(one), [])
  const expected = await days(sql, 0, 7)
  for (const name of ['public', 'one', 'Two, three'])
    t.strictSame(await partitionsOf(sql, name), expected, name)

  // Called from elsewhere, each looks after the schema it was made in.
  await sql`drop table ${sql(`one.${expected[7]}`)}`
  await sql`select one.ensure_audit_partitions(7)`
  t.strictSame(await partitionsOf(sql, 'one'), expected)
})

t.test('a search_path without a schema that exists is said plainly', async (t) => {
  const url = await services.createDatabase()
  await t.rejects(migrate(`${url}?search_path=nowhere`), { message: /may use no schema of its search_path/ })
})

t.test('a migration that was changed after it was applied is refused', async (t) => {
  const url = await services.createDatabase()
  await migrate(url)
  const sql = connect(t, url)
  await sql`update schema_version set md5 = 'another' where version = 4`
  await t.rejects(migrate(url), { message: /migration 4 \(create-key\) was changed/ })
})

t.test('a database that a later version has migrated is left as it is', async (t) => {
  const url = await services.createDatabase()
  await migrate(url)
  const sql = connect(t, url)
  await sql`insert into schema_version (version, name, md5) values (9999, 'later', 'x')`
  t.strictSame(await migrate(url), [])
})

t.test('partitions are neither made far ahead nor dropped while young, whoever asks', async (t) => {
  const sql = await migrated(t)
  await t.rejects(sql`select ensure_audit_partitions(32)`, { message: /at most 31 days/ })
  await t.rejects(sql`select drop_audit_partitions(0)`, { message: /at least a day/ })
})
