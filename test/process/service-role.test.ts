// The service as a role without DDL: the documented grants are enough, and everything else is refused.
import { readFile } from 'node:fs/promises'
import postgres from 'postgres'
import t from 'tap'
import { migrate } from '../../src/postgres/migrate.ts'
import { deleteUser, makeCaller, makeKey, startInstance } from '../instance.ts'
import { openDatabase, startPrivatePostgres, useServices } from '../services/index.ts'
import { externalEnv, openCommandLine, runLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const services = await useServices(t)
const server = await startPrivatePostgres(t)

const documented = await readFile(new URL('../../docs/operations.md', import.meta.url), 'utf8')
const statementsOf = (heading: string) =>
  [
    ...documented
      .split(`\n### ${heading}\n`)[1]!
      .split(/\n##+ /)[0]!
      .matchAll(/```sql\n(.*?)```/gs),
  ].map(([, block]) =>
    block!
      .replaceAll(/^--.*$/gm, '')
      .split(';')
      .map((statement) => statement.trim())
      .filter((statement) => statement !== ''),
  )
const [makeRoles, grants] = statementsOf('A role without DDL') as [string[], string[]]
const [readerGrants] = statementsOf('A role that only reads') as [string[]]

const urlOf = (role: string, database = 'latchkey') =>
  `postgres://${role}@127.0.0.1:${server.port}/${database}`
const owner = urlOf('latchkey_owner')
const service = urlOf('latchkey_service')

async function execute(url: string, statements: string[]) {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  for (const statement of statements) await sql.unsafe(statement)
  await sql.end({ timeout: 1 })
}

t.test('the documented roles and grants can be made once the owner has migrated', async (t) => {
  await execute(server.url, makeRoles)
  // As before Postgres 15, where every role may create tables here.
  await execute(urlOf('postgres'), ['revoke create on schema public from public'])
  await execute(owner, ['alter default privileges revoke execute on functions from public'])

  const { runWith } = await openCommandLine(t)
  const as = (databaseUrl: string) => externalEnv({ databaseUrl, redisUrl: null })
  const { code, stderr } = await runWith(as(service), 'users', 'list')
  t.equal(code, 1)
  t.match(
    stderr,
    /^latchkey: [0-9]+ migrations are missing.*permission denied.*"latchkey migrate" as the owner\n$/,
  )

  t.equal((await runWith(as(owner), 'migrate')).code, 0)
  await execute(owner, grants)
})

t.test('a start of the service role waits for no lock of migrations', async (t) => {
  const held = await openDatabase(t, server.url.replace(/\/postgres$/, '/latchkey')).reserve()
  await held`select pg_advisory_lock(7231906)`
  await held`begin`
  await held`lock table schema_version in share row exclusive mode`
  t.strictSame(await migrate(service), [])
  await held`rollback`
  await held`select pg_advisory_unlock(7231906)`
  held.release()
})

t.test('everything the service does works as the service role', async (t) => {
  const sql = openDatabase(t, owner)
  await sql`drop table ${sql(await lastPartition(sql))}`
  await sql.unsafe(`create table audit_refusals_20200101 partition of audit_refusals
    for values from ('2020-01-01 00:00:00+00') to ('2020-01-02 00:00:00+00')`)
  await sql`select create_day_partitions('key_usage', '2020-01-01', '2020-01-01')`
  for (const table of ['key_usage_hours', 'key_usage_days'])
    await sql`
      insert into ${sql(table)} (starts_at, key_id, requests, limited)
      select day, 'apk_1', 1, 0 from unnest(array['2020-01-01Z', '2020-01-02Z']::timestamptz[]) as day`

  const instance = await startInstance(
    t,
    { ...services, databaseUrl: service },
    { AUDIT_RETENTION_DAYS: '30' },
  )
  t.equal(
    (await partitions(sql)).filter(({ name }) => name > 'audit_refusals_2021').length,
    8,
    'all are made',
  )
  const old = ['audit_refusals_20200101', 'key_usage_20200101', 'key_usage_hours of 20200101']
  const dropped = () => instance.log.flatMap(({ partitions = [] }) => partitions as string[]).sort()
  await until('the old ones are dropped', () => dropped().length >= old.length)
  t.strictSame(dropped(), old)

  const caller = await makeCaller(instance)
  const { token } = caller
  const ask = async (method: string, path: string, json?: unknown) =>
    (await instance.ask(method, path, json === undefined ? { token } : { token, json })).status
  t.equal(await ask('POST', '/v1/keys', { name: 'second' }), 201)
  t.equal(await ask('PATCH', `/v1/keys/${caller.id}`, { rate_limit_rpm: 5000 }), 200)
  t.equal(await ask('GET', '/v1/keys'), 200)
  t.equal((await instance.ask('GET', '/v1/keys', { token: 'nonsense' })).status, 401)
  const sibling = await makeKey(instance, { userId: caller.userId })
  t.equal(await ask('POST', `/v1/keys/${sibling.id}/rotate`), 201)
  t.equal(await ask('DELETE', `/v1/keys/${caller.id}`), 200)
  t.equal(await ask('GET', '/v1/keys'), 401)
  await deleteUser(instance, caller.userId)
  const events = await sql`select distinct event from audit_log order by 1`
  t.strictSame(
    events.map(({ event }) => event),
    [
      'auth.refused',
      'key.created',
      'key.revoked',
      'key.rotated',
      'key.updated',
      'user.created',
      'user.deleted',
    ],
  )
  t.equal((await sql`select id from instances`).length, 1, 'it reports itself')
  await instance.close()
  t.equal((await sql`select id from instances`).length, 0)
  const [used] = await sql`select last_used_at is not null as used from api_keys where id = ${caller.id}`
  t.equal(used!.used, true)
})

t.test('a grant that is missing is a 503, and the log and the command line say what to do', async (t) => {
  const missing = 'permission denied for table'
  const advice = 'check the grants: "A role without DDL" in docs/operations.md'
  await execute(owner, [
    `insert into key_usage (starts_at, key_id, requests, limited) values (now() - interval '5 hours', 'apk_1', 1, 0)`,
    'revoke insert on key_usage_hours from latchkey_service',
  ])
  const instance = await startInstance(t, { ...services, databaseUrl: service })
  const { token, userId } = await makeCaller(instance)
  const as = externalEnv({ databaseUrl: service, redisUrl: null })
  const { runWith } = await openCommandLine(t)
  await execute(owner, ['revoke insert on api_keys from latchkey_service'])
  t.equal((await instance.ask('POST', '/v1/keys', { token, json: { name: 'a' } })).status, 503)
  const reason = (pool: string) => `Postgres (${pool}): ${missing} api_keys; ${advice}`
  t.ok(instance.log.some((line) => line.reason === reason('management')))
  const rollUpFault = await until('rolling up fails', () =>
    instance.log.find(({ msg }) => msg === 'hours and days of usage are not rolled up; will be tried again'),
  )
  t.equal(rollUpFault.reason, `Postgres (rollups): ${missing} key_usage_hours; ${advice}`)
  const { stderr } = await runWith(as, 'keys', 'create', '--user', userId, '--name', 'a')
  t.equal(stderr, `latchkey: ${reason('operator')}\n`)
  await execute(owner, [...grants, 'revoke select on schema_version from latchkey_service'])
  const start = await runLatchkey(t, as, 'serve')
  const fault = `latchkey: the Postgres of DATABASE_URL: ${missing} schema_version; ${advice}\n`
  t.strictSame([start.code, start.stdout, start.stderr], [1, '', fault], 'at once')
  await execute(owner, grants)
})

t.test('a role that only reads can run the commands that only read', async (t) => {
  const { runWith } = await openCommandLine(t)
  const as = (role: string) => externalEnv({ databaseUrl: urlOf(role), redisUrl: null })
  const answerOf = async (...words: string[]) =>
    JSON.parse((await runWith(as('latchkey_service'), ...words, '--json')).stdout)
  const user = await answerOf('users', 'create', '--name', 'Ada')
  const key = await answerOf('keys', 'create', '--user', user.id, '--name', 'a')
  await execute(server.url, ['create role latchkey_reader login'])
  await execute(owner, readerGrants)
  const reads = [
    'users list',
    `users get ${user.id}`,
    `keys list --user ${user.id}`,
    `keys get ${key.id}`,
    'audit list',
    'audit stats',
    `usage ${key.id}`,
    `lookup ${key.key_prefix}`,
    `lookup ${key.plain_key}`,
  ]
  for (const read of reads)
    t.match(await runWith(as('latchkey_reader'), ...read.split(' ')), { code: 0 }, read)
  for (const refused of ['migrate', `users delete ${user.id}`]) {
    const { code, stderr } = await runWith(as('latchkey_reader'), ...refused.split(' '))
    t.equal(code, 1, refused)
    t.match(stderr, /permission denied.*check the grants/, refused)
  }
})

t.test('what the service role may not do is refused', async (t) => {
  const sql = openDatabase(t, service)
  const [{ name }] = (await partitions(openDatabase(t, owner))) as unknown as [{ name: string }]
  const refused = [
    'update audit_log set path = null',
    'delete from audit_log',
    'truncate audit_log',
    `delete from ${name}`,
    `drop table ${name}`,
    'drop table audit_log',
    'delete from api_keys',
    'delete from users',
    'create table mine (id int)',
    'alter table users add column mine int',
    'update schema_version set version = 0',
    'create or replace function ensure_audit_partitions(integer) returns void language sql as $$ select $$',
  ]
  for (const statement of refused) {
    const error = await sql.unsafe(statement).then(
      () => null,
      (error) => error.code,
    )
    t.equal(error, '42501', statement)
  }
})

t.test(
  'the functions use the schema they were made in, whatever the search_path of the caller',
  async (t) => {
    const sql = openDatabase(t, server.url.replace(/\/postgres$/, '/latchkey'))
    await sql`create role stranger login`
    const functions = ['audit', 'usage'].flatMap((of) => [`ensure_${of}_partitions`, `drop_${of}_partitions`])
    for (const name of functions)
      await t.rejects(openDatabase(t, urlOf('stranger')).unsafe(`select ${name}(7)`), { code: '42501' }, name)
    const [noting] =
      await sql`select has_function_privilege('stranger', 'note_key_change()', 'execute') as may`
    t.equal(noting!.may, false, 'nor may a stranger make a trigger of it')
    const settings = await sql`
      select proname as name, proconfig as config from pg_proc where proname = any (string_to_array(${functions.join()}, ','))`
    t.same(
      new Map(settings.map(({ name, config }) => [name, config])),
      new Map(functions.map((name) => [name, ['search_path=public, pg_temp']])),
    )

    const own = await openDatabase(t, service).reserve()
    const [{ name }] = (await partitions(sql)) as unknown as [{ name: string }]
    await own.unsafe(`create temporary table ${name} (id int)`)
    await own`create temporary table audit_refusals (id int)`
    await sql`drop table ${sql(`public.${name}`)}`
    await own`set search_path = pg_temp, public`
    await own`select public.ensure_audit_partitions(7)`
    const names = (await partitions(sql)).map((row) => row.name)
    t.ok(names.includes(name), 'a temporary table of the same name does not count as the partition')
    own.release()
  },
)

const partitions = (sql: postgres.Sql) => sql`
  select relname as name from pg_inherits join pg_class c on c.oid = inhrelid
  where inhparent = 'public.audit_refusals'::regclass order by 1`
const lastPartition = async (sql: postgres.Sql) => (await partitions(sql)).at(-1)!.name as string
