// latchkey doctor: each fault is made on real servers, found, and comes with advice.
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { readConfig } from '../../src/config.ts'
import { examinePostgres } from '../../src/postgres/examine.ts'
import { migrate } from '../../src/postgres/migrate.ts'
import { examineRedis, settings } from '../../src/redis/examine.ts'
import { examine } from '../../src/wiring/examine.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { clusterCommands } from '../redis/acl.ts'
import {
  makeCertificates,
  openDatabase,
  startPrivatePostgres,
  startPrivateRedis,
  startRedisCluster,
  useServices,
} from '../services/index.ts'
import { startOddPort } from '../services/odd-ports.ts'
import { aFolder, type Env, externalEnv, openCommandLine, runLatchkey } from './latchkey.ts'

const services = await useServices(t)

/** What is not ok, as `about: found`, and that each of it has advice. */
async function faultsOf(t: Test, env: Env, state: 'wrong' | 'note' = 'wrong'): Promise<string[]> {
  const findings = await examine(readConfig(env))
  for (const finding of findings) {
    t.notMatch(JSON.stringify(finding), /hunter2/)
    if (finding.state !== 'ok') t.ok(finding.advice, finding.found)
  }
  return findings.filter((one) => one.state === state).map(({ about, found }) => `${about}: ${found}`)
}

const schemaOf = async (env: Env) => (await examine(readConfig(env))).find(({ about }) => about === 'schema')

const documented = await readFile(new URL('../../docs/operations.md', import.meta.url), 'utf8')
const grants = documented
  .split('\n### A role without DDL\n')[1]!
  .split(/\n##+ /)[0]!
  .match(/^grant .*(?=;$)/gm)!

t.test('each fault of Postgres is found, and comes with advice', async (t) => {
  const server = await startPrivatePostgres(t)
  const sql = openDatabase(t, server.url)
  const env = externalEnv({ databaseUrl: server.url, redisUrl: null })
  const asService = { ...env, DATABASE_URL: server.url.replace('postgres@', 'latchkey_service:hunter2@') }

  t.match(await faultsOf(t, env), [/^schema: \d+ migrations are missing$/])
  const instance = await startInstance(t, { ...services, databaseUrl: server.url, redisUrl: null })
  await makeCaller(instance)
  t.strictSame(await faultsOf(t, env), [], 'nothing is wrong once it has been migrated')
  const [last] = await sql`
    delete from schema_version where version = (select max(version) from schema_version) returning *`
  t.strictSame(await faultsOf(t, env), ['schema: 1 migration is missing'])
  await sql`insert into schema_version ${sql(last!)}`

  const [another] = await faultsOf(t, { ...env, HASH_SECRET: 'another secret, hunter2, 32 characters' })
  t.equal(another, 'hash secret: 1 of 1 usable keys were made under another secret, and are refused')
  const turned = { HASH_SECRET: 'another secret, 32 characters long', HASH_SECRET_PREVIOUS: env.HASH_SECRET! }
  t.match(await faultsOf(t, { ...env, ...turned }, 'note'), [/^hash secret: 1 of 1 .* previous/, /^Redis/])

  t.strictSame(await faultsOf(t, { ...env, KEY_PREFIX: 'acme' }), [
    'key prefix: 1 of 1 usable keys have another prefix, and are refused',
  ])

  await makeCaller(instance)
  await sql`update api_keys set key_prefix = 'acme_12345', hash_secret_id = 'another'
    where id = (select min(id) from api_keys)`
  t.strictSame(await faultsOf(t, env), [], 'while some keys work')
  t.match(await faultsOf(t, env, 'note'), [/^hash secret: 1 of 2/, /^key prefix: 1 of 2/, /^Redis/])
  await sql`update api_keys set revoked_at = now() where hash_secret_id = 'another'`

  await sql`create role latchkey_service login`
  await sql`revoke execute on all functions in schema public from public`
  for (const grant of grants) await sql.unsafe(grant)
  t.strictSame(await faultsOf(t, asService), [], 'the documented grants are enough')
  for (const grant of grants.filter((one) => !one.includes(' on schema '))) {
    const [, privileges, place] = /^grant (.*) on (.*) to/.exec(grant)!
    for (const privilege of privileges!.split(', ')) {
      await sql.unsafe(`revoke ${privilege} on ${place} from latchkey_service`)
      const state = place!.includes('drop_audit_partitions') ? 'note' : 'wrong'
      t.match(
        (await faultsOf(t, asService, state)).join(),
        /privileges|permission/,
        `without ${privilege} on ${place}`,
      )
    }
    await sql.unsafe(grant)
  }

  await sql`revoke select on schema_version from latchkey_service`
  t.match(await schemaOf(asService), {
    found: 'permission denied for table schema_version',
    advice: /^Check the grants: "A role/,
  })
  await sql`create schema postgres`
  t.match(await schemaOf(env), {
    found: /is first in the search_path.* add \?search_path=public to the URL/,
    advice: 'See "Postgres" in docs/operations.md.',
  })
  await sql`drop schema postgres`

  const adviceOf = async (more: Env) =>
    (await examine(readConfig({ ...env, ...more }))).find(({ about }) => about === 'Postgres')?.advice
  for (const more of [
    { PGSSLMODE: 'bogus' },
    { PGSSLMODE: 'verify-full', PGSSLROOTCERT: '/nowhere' },
    { DATABASE_URL: `${server.url}?sslmode=require&sslmode=disable` },
  ])
    t.match(await adviceOf(more), /"TLS to Postgres"/)
  const setting = { DATABASE_URL: `${asService.DATABASE_URL}?zero_damaged_pages=on` }
  t.match(await adviceOf(setting), /"zero_damaged_pages", which this role may not set: remove it/)
  const secretless = { secretId: null, previousSecretId: null, tokenPrefix: 'lk', connectionsMax: 1 }
  const found = await examinePostgres({ url: server.url, ssl: {}, ...secretless })
  t.match(
    found.find(({ about }) => about === 'hash secret'),
    { state: 'wrong', found: /hash-secret .* is missing/, advice: /^Restore it/ },
  )

  await sql`create database other encoding 'SQL_ASCII' locale 'C' template template0`
  const other = server.url.replace(/\w+$/, 'other')
  t.match(await faultsOf(t, { ...env, DATABASE_URL: other }), ['Postgres: encoding SQL_ASCII'])

  await sql`alter database postgres set default_transaction_read_only = on`
  t.match(await faultsOf(t, env), ['Postgres: takes no writes'])
  await sql`alter database postgres reset default_transaction_read_only`
  await sql`alter database postgres set default_transaction_isolation = 'repeatable read'`
  t.match(await faultsOf(t, env), ['Postgres: default_transaction_isolation is repeatable read'])
  await sql`alter database postgres reset default_transaction_isolation`
  await sql`alter role latchkey_service set synchronous_commit = off`
  t.match(await faultsOf(t, asService), ['Postgres: synchronous_commit is off'])
  await sql`alter role latchkey_service reset synchronous_commit`
  await sql`alter role latchkey_service set extra_float_digits = -1`
  t.match(await faultsOf(t, asService), ['Postgres: extra_float_digits is -1'])
  await sql`alter role latchkey_service reset extra_float_digits`
  await sql`alter role latchkey_service connection limit 12`
  t.match(await faultsOf(t, asService, 'note'), [
    'Postgres connections: 12 allowed, and an instance opens up to 13',
    /^Redis/,
  ])
  await sql`alter role latchkey_service connection limit 13`
  await sql`alter role latchkey_service set idle_session_timeout = '1min'`
  t.match(await faultsOf(t, asService, 'note'), [
    'Postgres connections: idle_session_timeout is 1min',
    /^Redis/,
  ])
  await sql`alter role latchkey_service reset idle_session_timeout`
  t.match(await faultsOf(t, asService, 'note'), [/^Redis/])
  await sql`insert into schema_version (version) values (999)`
  t.match(await faultsOf(t, env, 'note'), [/^schema: version 999, newer/, /^Redis/])
  await sql`delete from schema_version where version = 999`
  await sql`update schema_version set md5 = 'x' where version = 2`
  t.match(await schemaOf(env), {
    state: 'wrong',
    found: /^migration 2 .* was changed/,
    advice: /"Upgrading"/,
  })
  await sql`update schema_version set md5 = null where version = 2`
  await instance.close()
  await sql`alter system set max_locks_per_transaction = 10`
  await server.kill()
  await server.restart()
  for (let ago = 350; ago > 0; ago -= 70)
    await sql`
      select create_day_partitions('audit_refusals', today - ${ago}::int, today - ${ago}::int + 69)
      from (select (now() at time zone 'UTC')::date as today) as day`
  t.match(await faultsOf(t, env, 'note'), [
    /^audit partitions: 358 days: reading them takes \d+ of the \d+ locks/,
    /^Redis/,
  ])
  const partitions = await sql`select inhrelid::regclass::text as name from pg_inherits
    where inhparent = 'audit_refusals'::regclass`
  const [{ today } = {}] = await sql`select to_char(now() at time zone 'UTC', 'YYYYMMDD') as today`
  await sql.unsafe(`drop table audit_refusals_${today}`)
  t.match(await faultsOf(t, env), [/^audit partitions: none for today/], 'later days do not make up for it')
  for (const { name } of partitions) await sql.unsafe(`drop table if exists ${name}`)
  t.match(await faultsOf(t, env), [/^audit partitions: none for today/])

  const unusable = await examine(readConfig({ ...env, PGSSLROOTCERT: '/x' }))
  t.match(unusable[0], {
    found: /^PGSSLROOTCERT needs an sslmode/,
    advice: 'See "TLS to Postgres" in docs/operations.md.',
  })

  for (const [habit, found, advice] of [
    [
      'refuses a parameter, as PgBouncer does',
      'unsupported startup parameter: statement_timeout',
      'See "PgBouncer" in docs/operations.md.',
    ],
    ['is full, as PgBouncer says it', /max_client_conn/, /^Raise that limit: see "Postgres"/],
  ] as const) {
    const pooler = await startOddPort(t, habit)
    t.match((await examine(readConfig({ ...env, DATABASE_URL: pooler.url })))[0], { found, advice })
  }
  const unknown = `${env.DATABASE_URL}?channel_binding=require`
  t.match((await examine(readConfig({ ...env, DATABASE_URL: unknown })))[0], {
    found: 'unrecognized configuration parameter "channel_binding"',
    advice: /^Latchkey does not know the parameter "channel_binding" of the URL, .*: remove it[.]$/,
  })

  for (const [url, found, advice] of [
    [server.url.replace('postgres@', 'absent@'), /role "absent" does not exist/, /^Check the user .* pg_hba/],
    [
      server.url.replace(/\w+$/, 'absent'),
      /database "absent" does not exist/,
      /^Check the name of the database/,
    ],
    [`${server.url}?sslmode=require`, /offers no TLS/, 'See "TLS to Postgres" in docs/operations.md.'],
  ] as const)
    t.match((await examine(readConfig({ ...env, DATABASE_URL: url })))[0], { found, advice })

  await sql`alter role latchkey_service connection limit 0`
  t.match((await examine(readConfig(asService)))[0], {
    found: 'too many connections for role "latchkey_service"',
    advice: /^Raise that limit: see "Postgres"/,
  })

  await server.freeze()
  t.match(await faultsOf(t, env), [/^Postgres: no answer in (time|5000 ms)/])
  await server.kill()
  t.strictSame(await faultsOf(t, asService), ['Postgres: cannot be reached (ECONNREFUSED)'])
})

t.test('each fault of Redis is found, and comes with advice', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const env = externalEnv({ databaseUrl: services.databaseUrl, redisUrl: server.url })
  await migrate(services.databaseUrl)
  const admin = new Redis(server.url)
  t.teardown(() => admin.disconnect())
  const as = (user: string) => ({ ...env, REDIS_URL: server.url.replace('//', `//${user}:hunter2@`) })
  const allow = (user: string, ...rules: string[]) =>
    admin.call('ACL', 'SETUSER', user, 'reset', 'on', '>hunter2', ...rules)
  /** Without what a busy machine adds. */
  const notesOf = async (env: Env) =>
    (await faultsOf(t, env, 'note')).filter((note) => !/takes \d+ ms to answer/.test(note))
  const documentedCommands = documented.match(/^ {4}ACL SETUSER latchkey .*$/m)![0].match(/\+\S+/g)!

  t.strictSame(await faultsOf(t, env), [])
  await allow('service', '~rl:*', ...documentedCommands)
  t.strictSame(await faultsOf(t, as('service')), [], 'the documented permissions are enough')
  t.match(await notesOf(as('service')), [/^Redis settings: not readable/])
  for (const lacking of ['+incrby', '+evalsha']) {
    await allow('lacking', '~rl:*', ...documentedCommands.filter((one) => one !== lacking))
    t.match(await faultsOf(t, as('lacking')), [/^Redis: .*(permission|can't run)/], lacking)
  }
  await allow('blind', '~rl:*', ...documentedCommands.filter((one) => one !== '+scan'), '+info')
  t.match(await notesOf(as('blind')), [/SCAN/])
  t.match((await examineRedis(readConfig(as('blind')).redis!))[0], {
    state: 'ok',
    found: 'counts, and has every permission that requests need',
  })
  t.match(await faultsOf(t, as('nobody')), [/^Redis: WRONGPASS/])
  t.match(await faultsOf(t, { ...env, REDIS_URL: `${server.url}/99999` }), [
    /^Redis: REDIS_URL names database 99999/,
  ])

  await admin.config('SET', 'maxmemory-policy', 'allkeys-lru')
  t.strictSame(await faultsOf(t, env), [], 'without maxmemory nothing is evicted')
  await admin.config('SET', 'maxmemory', '100mb')
  t.match(await faultsOf(t, env), [/^Redis eviction: maxmemory-policy is allkeys-lru/])
  await admin.config('SET', 'maxmemory', '0')
  await admin.call('REPLICAOF', '127.0.0.1', '1')
  t.match(await faultsOf(t, env), [/^Redis: READONLY/])
  await admin.call('REPLICAOF', 'NO', 'ONE')
  await admin.config('SET', 'min-replicas-to-write', '1')
  t.match((await examineRedis(readConfig(env).redis!))[0], {
    found: /^NOREPLICAS/,
    advice: /^See `redis-cli info replication`/,
  })
  await admin.config('SET', 'min-replicas-to-write', '0')
  t.strictSame(await admin.keys('*'), [], 'nothing is left behind')
  await admin.client('PAUSE', 1500)
  t.strictSame(await faultsOf(t, env), [], 'a server that is only late is fine')

  await server.freeze()
  t.strictSame(await faultsOf(t, env), ['Redis: accepts connections, but does not answer'])
  await server.kill()
  t.strictSame(await faultsOf(t, env), ['Redis: cannot be reached (ECONNREFUSED)'])
})

t.test('a Redis that takes no connection says why', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const findingsAt = (redisUrl: string) =>
    examineRedis(readConfig(externalEnv({ databaseUrl: services.databaseUrl, redisUrl })).redis!)
  const admin = new Redis(server.url)
  t.teardown(() => admin.disconnect())
  const outside = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ internal, family }) => !internal && family === 'IPv4')
  if (outside) {
    await admin.config('SET', 'bind', `127.0.0.1 ${outside.address}`)
    const url = server.url.replace('127.0.0.1', outside.address)
    const found = /^DENIED Redis is running in protected mode because [^.]+$/
    t.match(await findingsAt(url), [{ state: 'wrong', found, advice: /password/ }])
  }
  await admin.acl('SETUSER', 'few', 'on', '>hunter2', '+@all', '-select', '~*')
  t.match(await findingsAt(`${server.url.replace('redis://', 'redis://few:hunter2@')}/1`), [
    { state: 'wrong', found: /^REDIS_URL names database 1, .*NOPERM/, advice: /^Grant the user \+select/ },
  ])
  t.match(await findingsAt(`${server.url},${server.url.replace('127.0.0.1', 'localhost')}`), [
    { state: 'wrong', found: /cluster support disabled/, advice: /^Put one URL into REDIS_URL/ },
  ])
  await admin.config('SET', 'maxclients', '1')
  const found = 'ERR max number of clients reached'
  t.match(await findingsAt(server.url), [{ state: 'wrong', found, advice: /maxclients/ }])
})

t.test('a Sentinel in REDIS_URL is recognised, alone or among several', async (t) => {
  // What a Sentinel does not know either.
  const args = ['eval', 'cluster'].flatMap((command) => ['--rename-command', command, ''])
  const server = await startPrivateRedis(t, { args })
  if (!server) return
  for (const redisUrl of [server.url, `${server.url},${server.url.replace('127.0.0.1', 'localhost')}`]) {
    const { redis } = readConfig(externalEnv({ databaseUrl: services.databaseUrl, redisUrl }))
    t.match((await examineRedis(redis!))[0], { state: 'wrong', advice: /^If that is a Sentinel/ }, redisUrl)
  }
})

t.test('redis:// for a Redis that speaks TLS is found, with the advice to use rediss://', async (t) => {
  const tls = await makeCertificates(t, ['DNS:localhost'])
  const server = tls && (await startPrivateRedis(t, { tls }))
  if (!server) return
  const redisUrl = `redis://:hunter2@localhost:${server.port}`
  const { redis } = readConfig(externalEnv({ databaseUrl: services.databaseUrl, redisUrl }))
  t.match(await examineRedis(redis!), [
    { state: 'wrong', found: 'the server speaks TLS', advice: /^Use rediss:/ },
  ])
})

t.test('a Redis that demands a client certificate is found, with the setting to change', async (t) => {
  const tls = await makeCertificates(t, ['DNS:localhost'])
  const server = tls && (await startPrivateRedis(t, { tls }))
  if (!server) return
  const admin = new Redis(server.port, { tls: { rejectUnauthorized: false } })
  t.teardown(() => admin.disconnect())
  await admin.config('SET', 'tls-auth-clients', 'yes')
  const env = externalEnv({ ...services, redisUrl: `rediss://localhost:${server.port}` })
  const { stdout } = await runLatchkey(t, { ...env, NODE_EXTRA_CA_CERTS: tls.authority }, 'doctor')
  t.match(stdout, /^wrong +Redis +.*certificate required.*\n {8}.*set `tls-auth-clients no`/m)
})

t.test('each master of a Redis Cluster is examined, also where REDIS_URL names only one', async (t) => {
  const cluster = await startRedisCluster(t, { masters: 2 })
  if (!cluster) return
  const findingsAt = (...urls: string[]) =>
    examineRedis(readConfig(externalEnv({ databaseUrl: services.databaseUrl, redisUrl: urls.join() })).redis!)
  const findings = await findingsAt(...cluster.urls)
  t.strictSame(
    findings.filter(({ state }) => state === 'wrong'),
    [],
  )
  const where = cluster.nodes.map(({ port }) => ` 127.0.0.1:${port}`)
  const kinds = ['Redis', 'Redis clock', 'Redis eviction']
  t.strictSame(
    new Set(findings.map(({ about }) => about)),
    new Set(['Redis', ...where.flatMap((node) => kinds.map((kind) => kind + node))]),
    'each master is examined',
  )
  const but = (lacking: string) => clusterCommands.filter((one) => one !== lacking)
  for (const { port } of cluster.nodes) {
    const admin = new Redis(port)
    t.teardown(() => admin.disconnect())
    await admin.call('ACL', 'SETUSER', 'service', 'on', 'nopass', '~rl:*', ...clusterCommands)
    await admin.call('ACL', 'SETUSER', 'lacking', 'on', 'nopass', '~rl:*', ...but('+asking'))
  }
  const wrongAs = async (user: string) => {
    const findings = await findingsAt(...cluster.urls.map((url) => url.replace('//', `//${user}:x@`)))
    return findings.filter(({ state }) => state === 'wrong')
  }
  t.strictSame(await wrongAs('service'), [], 'the documented permissions are enough')
  const lacksAsking = { about: 'Redis', found: /asking/i, advice: /"Permissions"/ }
  const lacking = await wrongAs('lacking')
  t.match(lacking, [lacksAsking, lacksAsking], 'on each node')
  t.strictSame(new Set(lacking.map(({ about }) => about)), new Set(where.map((node) => `Redis${node}`)))
  const without = new Redis(cluster.nodes[1]!.port)
  t.teardown(() => without.disconnect())
  await without.call('ACL', 'SETUSER', 'service', '-eval', '-evalsha')
  t.match(await wrongAs('service'), [{ about: `Redis${where[1]}`, found: /eval/i }])
  // A single server must write a probe, whose slot is on the first node.
  const lonely = /^is a node of a cluster, but REDIS_URL has only one URL$/
  t.match((await findingsAt(cluster.urls[0]!)).at(-1), { state: 'wrong', found: lonely })
  const [outage, ...others] = await findingsAt(cluster.urls[1]!)
  t.match(outage, { state: 'wrong', found: /MOVED/ })
  t.match(others, [{ state: 'wrong', found: lonely }])
  t.equal(others.length, 1, 'with an outage, only what is wrong is listed')
})

t.test('a Redis that counts is examined at once, and noted when its answer takes over 50 ms', async (t) => {
  const { redisUrl } = services
  const { redis } = readConfig(externalEnv({ databaseUrl: services.databaseUrl, redisUrl }))
  if (!redis) return t.pass('there is no Redis', { skip: true })
  // The clock stands still: waiting for a time would never end.
  const monoMs = performance.now()
  t.intercept(performance, 'now', { value: () => monoMs })
  for (const [tookMs, notes] of [
    [50, []],
    [51, ['takes 51 ms to answer; the service gives up after 100 ms']],
  ] as const) {
    let nowMs = Date.now()
    const clock = t.intercept(Date, 'now', { value: () => (nowMs += tookMs), configurable: true })
    const findings = await examineRedis(redis)
    clock.restore()
    t.strictSame(
      findings.filter(({ state }) => state !== 'ok').map(({ found }) => found),
      notes,
    )
  }
})

t.test('a Redis before version 6 is noted', async (t) => {
  const stateOf = (version: string) => settings('', `redis_version:${version}\r\n`, false)[0]!.state
  t.strictSame(['5.0.14', '6.0.0', '10.0.0'].map(stateOf), ['note', 'ok', 'ok'])
})

t.test('doctor prints what is wrong and what to do, and exits with 1', async (t) => {
  const env = externalEnv(services)
  await migrate(services.databaseUrl)
  const { runWith } = await openCommandLine(t)
  const good = await runWith(env, 'doctor')
  t.match(good, {
    code: 0,
    stderr: '',
    stdout: /^ok +configuration +every variable is valid\nok +Postgres +version /,
  })

  const guarded = { OPS_HOST: '0.0.0.0', OPS_TOKEN: 'a-token-of-adas-own' }
  t.equal((await runWith({ ...env, ...guarded }, 'doctor')).code, 0)

  const owner = await runWith(env, 'users', 'create', '--name', 'x', '--json')
  await runWith(env, 'keys', 'create', '--user', JSON.parse(owner.stdout).id, '--name', 'x')
  const turned = { HASH_SECRET: 'another secret, 32 characters long', HASH_SECRET_PREVIOUS: env.HASH_SECRET! }
  const noted = await runWith({ ...env, ...turned }, 'doctor', '--json')
  const said = JSON.parse(noted.stdout)
  t.ok(said.findings.some(({ state }: { state: string }) => state === 'note'))
  t.strictSame([noted.code, said.ok], [0, true], 'a note is nothing wrong')

  const down = await runLatchkey(
    t,
    { ...env, DATABASE_URL: 'postgres://ada:hunter2@127.0.0.1:1/x', OPS_HOST: '0.0.0.0' },
    'doctor',
  )
  t.match(down, { code: 1, stderr: /^latchkey: 2 of \d+ checks found something wrong\n$/ })
  t.match(down.stdout, /^wrong +ops listener +open to other machines.*\n {8}Set OPS_TOKEN/m)
  t.match(down.stdout, /^wrong +Postgres +cannot be reached \(ECONNREFUSED\)\n {8}Check DATABASE_URL/m)

  for (const [more, fault] of [
    [{ REDIS_URL: '' }, 'WORKERS above 1 needs DATABASE_URL and REDIS_URL'],
    [{ REDIS_URL: 'redis://127.0.0.1:1', PORT: '4001', OPS_PORT: '4000' }, 'PORT must not be one of the 4'],
    [{ REDIS_URL: 'redis://127.0.0.1:1', OPS_PORT: '65535' }, 'OPS_PORT must be at most 65532'],
  ] as const) {
    const { code, stdout } = await runWith({ ...env, ...more, WORKERS: '4' }, 'doctor')
    t.equal(code, 1, fault)
    t.match(stdout, new RegExp(`^wrong +configuration +${fault}.*\n {8}See "Several workers"`, 'm'))
    t.notMatch(stdout, /every variable is valid/)
  }

  const absent = { HOST: 'hunter2.invalid', OPS_HOST: 'hunter2.invalid' }
  const unresolved = await runWith({ ...env, ...absent }, 'doctor')
  t.match(unresolved.stdout, /^wrong +listener +HOST does not resolve\n {8}Set HOST to an address\.$/m)
  t.match(
    unresolved.stdout,
    /^wrong +ops listener +OPS_HOST does not resolve\n {8}Set OPS_HOST to an address\.$/m,
  )
  t.notMatch(unresolved.stdout + unresolved.stderr, /hunter2/)

  const bad = { PORT: 'hunter2', HASH_SECRET: 'hunter2', REDIS_URL: 'hunter2' }
  const invalid = await runWith({ ...env, ...bad }, 'doctor', '--json')
  t.equal(invalid.code, 1)
  const { ok, findings } = JSON.parse(invalid.stdout)
  t.strictSame([ok, findings.length], [false, 3])
  for (const name of Object.keys(bad)) t.match(invalid.stdout, `${name} must be`)
  t.notMatch(down.stdout + down.stderr + invalid.stdout + invalid.stderr, /hunter2/)

  const nothing = await runWith({ DATA_DIR: await aFolder(t) }, 'doctor')
  t.match(nothing, { code: 1, stdout: /^wrong +Postgres +.* has no database: .*latchkey serve/m })
  const unreadable = await runWith({ DATA_DIR: process.execPath }, 'doctor')
  t.match(unreadable, { code: 1, stdout: /^wrong +Postgres +cannot read .*hash-secret: ENOTDIR/m })
  const damaged = await aFolder(t)
  await mkdir(join(damaged, 'postgres'))
  await writeFile(join(damaged, 'postgres/PG_VERSION'), '')
  const { stdout } = await runWith({ DATA_DIR: damaged }, 'doctor')
  t.match(stdout, /^wrong +Postgres +.*postgres-password is missing.*\n {8}See "Embedded mode" in docs/m)
})
