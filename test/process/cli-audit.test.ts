// latchkey audit list --follow and audit stats, on a Postgres that goes and comes back.
import postgres from 'postgres'
import t from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { startInstance } from '../instance.ts'
import { logEverything } from '../security/canary-remains.ts'
import { openDatabase, startPrivatePostgres, startTcpProxy, useServices } from '../services/index.ts'
import { externalEnv, fastClock, openCommandLine, runLatchkey, spawnLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const services = await useServices(t)

t.test(
  '--follow prints each new entry once, survives a restart of Postgres, and ends on Ctrl-C or SIGTERM',
  async (t) => {
    const server = await startPrivatePostgres(t)
    const env = externalEnv({ databaseUrl: server.url, redisUrl: null })
    const { run } = await openCommandLine(t, env)
    const create = async (name: string) => (await run('users', 'create', '--name', name, '--json')).code
    for (const name of ['first', 'second', 'third']) await create(name)

    const follow = ['audit', 'list', '--event', 'user.created', '--limit', '2', '--follow']
    const following = await spawnLatchkey(t, env, ...follow, '--json')
    const names = () => following.log.map(({ details }) => (details as { name: string }).name)
    const forPeople = await spawnLatchkey(t, env, ...follow)
    const linesForPeople = () => forPeople.stdout.split('\n').length - 1
    await until('both show the latest', () => names().length === 2 && linesForPeople() === 3)
    await create('fourth')
    await until('it shows the new one', () => names().length === 3)

    const sql = postgres(server.url, { max: 1 })
    await sql`insert into audit_log (id, occurred_at, request_id, event, details)
      select 'aud_' || name, newest - make_interval(secs => age), 'req_' || name, event, jsonb_build_object('name', name)
      from (select max(occurred_at) as newest from audit_log) as _, (values
        ('late', 30, 'user.created'), ('later', 29, 'user.created'), ('other', 28, 'user.deleted')
      ) as made (name, age, event)`
    await sql.end()
    await until('it shows two whose change took long to commit', () => names().includes('late'))

    await server.kill()
    await until('it says that Postgres is down', () => /Postgres.*trying again/.test(following.stderr))
    await server.restart()
    await until('a user is created', async () => (await create('fifth')) === 0)
    await until('it shows the one after the restart', () => names().includes('fifth'))
    t.strictSame(names(), ['second', 'third', 'fourth', 'late', 'later', 'fifth'], 'oldest first, each once')
    // Another pipe than that of the entries, so it may come later.
    await until('it says that Postgres is back', () => /Postgres is back\n/.test(following.stderr))
    t.match(following.stderr, /^latchkey: Postgres[^\n]*\nlatchkey: Postgres is back\n$/)

    await until('the other has them too', () => linesForPeople() === 7)
    const [header, row] = forPeople.stdout.split('\n') as [string, string]
    t.equal(row.indexOf('user.created'), header.indexOf('event'), 'in columns')
    t.match(forPeople.stdout, /^occurred +request +event.* actor\n.*Z +req_\w+ +user\.created .* cli:\S+\n/)
    for (const [one, signal] of [
      [following, 'SIGINT'],
      [forPeople, 'SIGTERM'],
    ] as const) {
      one.kill(signal)
      t.match(await one.ended, { code: 0, signal: null })
    }
  },
)

t.test('--follow shows a change that commits late within a flood of refusals', async (t) => {
  const env = externalEnv({ databaseUrl: await services.createDatabase(), redisUrl: null })
  await runLatchkey(t, env, 'migrate')
  const sql = openDatabase(t, env.DATABASE_URL!)
  const refuse = (name: string, count: number) => sql`
    insert into audit_log (id, occurred_at, request_id, event, reason)
    select 'aud_' || ${name}::text || n, now(), ${name}, 'auth.refused', 'revoked' from generate_series(1, ${count}::int) n`
  await refuse('req_before', 11)
  const following = await spawnLatchkey(t, env, 'audit', 'list', '--follow', '--json')
  const requests = () => following.log.map(({ request_id }) => request_id)
  await until('it shows the latest', () => requests().length > 0)
  await refuse('req_first', 1)
  await until('it shows new entries', () => requests().includes('req_first'))
  for (const name of ['req_flood1', 'req_flood2']) {
    await refuse(name, 1500)
    await until('it shows the refusals', () => requests().filter((id) => id === name).length === 1500)
  }
  await sql`
    insert into audit_log (id, occurred_at, request_id, event)
    values ('aud_late', now() - interval '20 seconds', 'req_late', 'user.created')`
  await until('it shows the change', () => requests().includes('req_late'))

  await refuse('req_more', 2500)
  await until('it says that it left some out', () => following.stderr !== '')
  t.equal(following.stderr, 'latchkey: more than 2000 new entries of one event; older ones are left out\n')
  following.kill('SIGINT')
  await following.ended
  t.equal(requests().filter((id) => id === 'req_before').length, 10, 'the latest ten of those before')
  t.equal(requests().length, new Set(following.log.map(({ id }) => id)).size, 'each entry once')
  const { stdout } = await runLatchkey(t, env, 'audit', 'list', '--json')
  t.equal(JSON.parse(stdout).length, 100, 'without --follow, a hundred')
})

t.test('--follow shows what is new although an entry is ahead of the clock', async (t) => {
  const env = externalEnv({ databaseUrl: await services.createDatabase(), redisUrl: null })
  const { run } = await openCommandLine(t, env)
  await run('users', 'create', '--name', 'first')
  const sql = openDatabase(t, env.DATABASE_URL!)
  await sql`insert into audit_log (id, occurred_at, request_id, event) values
    ('aud_ahead', now() + interval '1 hour', 'req_ahead', 'user.updated')`
  const following = await spawnLatchkey(t, env, 'audit', 'list', '--follow', '--json')
  const events = () => following.log.map(({ event }) => event)
  await until('it shows what there is', () => events().length === 2)
  await run('users', 'create', '--name', 'second')
  await until('it shows the new one', () => events().length === 3)
  t.strictSame(events(), ['user.created', 'user.updated', 'user.created'], 'each once')
  following.kill('SIGINT')
  t.match(await following.ended, { code: 0, signal: null })
})

t.test('--follow --since shows no change that is older, however late it commits', async (t) => {
  const env = externalEnv({ databaseUrl: await services.createDatabase(), redisUrl: null })
  await runLatchkey(t, env, 'migrate')
  const sql = openDatabase(t, env.DATABASE_URL!)
  const startS = Math.floor(Date.now() / 1000)
  const commit = (name: string, afterS: number) => sql`
    insert into audit_log (id, occurred_at, request_id, event)
    values (${`aud_${name}`}, to_timestamp(${startS + afterS}), ${`req_${name}`}, 'user.created')`
  await commit('first', -5)
  const since = ['--since', String(startS - 5)]
  const following = await spawnLatchkey(t, env, 'audit', 'list', '--follow', ...since, '--json')
  const requests = () => following.log.map(({ request_id }) => request_id)
  await until('it shows the first', () => requests().length === 1)
  await commit('older', -10)
  await commit('next', 0)
  await until('it shows the next', () => requests().includes('req_next'))
  t.strictSame(requests(), ['req_first', 'req_next'])
  following.kill('SIGINT')
  await following.ended
})

t.test('--follow ends on Ctrl-C even if Postgres hangs and keeps its connections open', async (t) => {
  const network = await startTcpProxy(t, services.databaseUrl)
  const env = externalEnv({ databaseUrl: network.url, redisUrl: null })
  await runLatchkey(t, env, 'users', 'create', '--name', 'x')
  const following = await spawnLatchkey(t, env, 'audit', 'list', '--follow')
  await until('it shows an entry', () => following.stdout.includes('user.created'))

  const sql = openDatabase(t, services.databaseUrl)
  const holder = await sql.reserve()
  await holder`begin`
  await holder`lock table audit_log`
  await until('it asks for new ones', async () => {
    const [row] = await holder`select from pg_locks where relation = 'audit_log'::regclass and not granted`
    return row !== undefined
  })
  network.blackHole()
  await holder`rollback`
  holder.release()

  following.kill('SIGINT')
  let ended: unknown
  void following.ended.then((how) => {
    ended = how
  })
  t.match(await until('it ends', () => ended), { code: 0, stderr: '' })
})

t.test('--follow ends on Ctrl-C while its first reads wait for a lock', async (t) => {
  const env = externalEnv({ databaseUrl: await services.createDatabase(), redisUrl: null })
  await runLatchkey(t, env, 'migrate')
  await openDatabase(t, env.DATABASE_URL!).begin(async (holder) => {
    await holder`lock table audit_log`
    const following = await spawnLatchkey(t, env, 'audit', 'list', '--follow')
    await until('it waits', async () => {
      const [row] = await holder`select from pg_locks where relation = 'audit_log'::regclass and not granted`
      return row !== undefined
    })
    following.kill('SIGINT')
    t.match(await following.ended, { code: 0, signal: null, stderr: '' })
  })
})

t.test('a key in place of an id or external id is in no statement', async (t) => {
  const server = await startPrivatePostgres(t)
  const { run } = await openCommandLine(t, externalEnv({ databaseUrl: server.url, redisUrl: null }))
  await run('migrate')
  const sql = postgres(server.url, { max: 1 })
  const logged = await logEverything(sql)
  const token = tokenFormat('lk').mint()
  for (const text of [token, `my ${token}.`, 'marker-17'])
    for (const words of [
      ['audit', 'find'],
      ['audit', 'list', '--key'],
      ['audit', 'list', '--user'],
      ['users', 'list', '--external-id'],
    ]) {
      const { code, stdout } = await run(...words, text, '--json')
      t.strictSame([code, stdout], words[0] === 'audit' ? [1, ''] : [0, '[]\n'], words.join(' '))
    }
  for (const query of [token.slice(3), `req_${token}`]) t.match(await run('lookup', query), { code: 1 })
  const statements = (await logged()).toString('latin1')
  await sql.end()
  t.match(statements, 'marker-17', 'what is sent is in the log')
  t.notOk(statements.includes(token.slice(3)))
})

t.test('an id that does not exist is a fault, and one without entries is not', async (t) => {
  const databaseUrl = await services.createDatabase()
  const { run } = await openCommandLine(t, externalEnv({ databaseUrl, redisUrl: null }))
  const user = JSON.parse((await run('users', 'create', '--name', 'x', '--json')).stdout)
  const none = await run('audit', 'list', '--user', user.id, '--event', 'key.revoked', '--json')
  t.strictSame([none.code, none.stdout], [0, '[]\n'])
  for (const more of [[], ['--follow']]) {
    const wrongUser = await run('audit', 'list', '--user', 'usr_none', ...more)
    t.match(wrongUser, { code: 1, stderr: 'latchkey: there is no user usr_none\n' })
    const wrongKey = await run('audit', 'list', '--key', 'apk_none', ...more)
    t.match(wrongKey, { code: 1, stderr: 'latchkey: there is no key apk_none\n' })
  }
})

t.test('a list has what was asked for and nothing else', async (t) => {
  const databaseUrl = await services.createDatabase()
  const { answerOf } = await openCommandLine(t, externalEnv({ databaseUrl, redisUrl: null }))
  const ada = await answerOf('users', 'create', '--name', 'Ada', '--external-id', 'customer-17')
  const key = await answerOf('keys', 'create', '--user', ada.id, '--name', 'x')
  await answerOf('users', 'create', '--name', 'Bob')
  t.strictSame(await answerOf('users', 'list', '--external-id', 'customer-17'), [ada])
  const eventsOf = async (...filter: string[]) =>
    (await answerOf('audit', 'list', ...filter)).map(({ event }: { event: string }) => event)
  t.strictSame(await eventsOf('--user', ada.id), ['key.created', 'user.created'])
  t.strictSame(await eventsOf('--key', key.id), ['key.created'])
  t.strictSame(await eventsOf('--since', String(Math.floor(Date.now() / 1000) + 60)), [])
})

t.test('find shows every entry of a request', async (t) => {
  const databaseUrl = await services.createDatabase()
  const { run } = await openCommandLine(t, externalEnv({ ...services, databaseUrl }))
  const instance = await startInstance(t, { ...services, databaseUrl })
  const refusal = { method: 'GET', path: '/', ip: null, userAgent: null, userId: null, details: null }
  const record = (requestId: string, keyIds: string[]) =>
    instance.service.stores.audit.recordRefusals(
      keyIds.map((keyId) => ({ ...refusal, requestId, reason: 'revoked' as const, keyId })),
    )
  await record('req_one', ['apk_1'])
  await record('req_three', ['apk_1', 'apk_2', 'apk_3'])

  const [one, three] = [
    JSON.parse((await run('audit', 'find', 'req_one', '--json')).stdout),
    JSON.parse((await run('audit', 'find', 'req_three', '--json')).stdout),
  ]
  t.match(one, { request_id: 'req_one', key_id: 'apk_1' })
  t.notOk('more' in one)
  t.match(three, {
    request_id: 'req_three',
    key_id: 'apk_1',
    more: [{ key_id: 'apk_2' }, { key_id: 'apk_3' }],
  })
  const { stdout } = await run('audit', 'find', 'req_three')
  t.match(
    stdout,
    /^id +aud_\w+\n[\s\S]*key_id +apk_1\n[\s\S]*\n\nid [\s\S]*key_id +apk_2\n[\s\S]*\n\nid [\s\S]*key_id +apk_3\n/,
  )
  t.match((await run('audit', 'find', 'req_one')).stdout, /^id +aud_\w+\n[\s\S]*key_id +apk_1\n/)
})

t.test('stats count refusals by reason, key and address, the most frequent first', async (t) => {
  const databaseUrl = await services.createDatabase()
  const { run } = await openCommandLine(t, externalEnv({ ...services, databaseUrl }))
  const instance = await startInstance(t, { ...services, databaseUrl })
  const refusal = { method: 'GET', path: '/', userAgent: null, userId: null, details: null }
  const record = (times: number, reason: 'unknown_key' | 'expired', keyId: string | null, ip: string) =>
    instance.service.stores.audit.recordRefusals(
      Array.from({ length: times }, (_, i) => ({ ...refusal, requestId: `req_${i}`, reason, keyId, ip })),
    )
  await record(3, 'expired', 'apk_1', '192.0.2.1')
  await record(2, 'unknown_key', null, '192.0.2.1')
  await record(1, 'expired', 'apk_2', '192.0.2.2')

  const answer = async (...words: string[]) =>
    JSON.parse((await run('audit', 'stats', ...words, '--json')).stdout)
  const all = await answer()
  t.match(all, { refusals: 6, until: null })
  t.strictSame(all.reasons, [
    { value: 'expired', refusals: 4 },
    { value: 'unknown_key', refusals: 2 },
  ])
  t.strictSame(all.keys, [
    { value: 'apk_1', refusals: 3 },
    { value: null, refusals: 2 },
    { value: 'apk_2', refusals: 1 },
  ])
  const cut = await answer('--limit', '1')
  t.match(cut, { refusals: 6, addresses: [{ value: '192.0.2.1', refusals: 5 }] })
  t.strictSame([cut.reasons.length, cut.keys.length, cut.addresses.length], [2, 1, 1])
  t.match(
    (await run('audit', 'stats', '--help')).stdout,
    /--limit <n> +maximum number of keys and of addresses/,
  )
  const past = await answer('--since', '2d', '--until', '1d')
  t.match(past, { refusals: 0, keys: [] })
  for (const name of ['since', 'until']) t.ok(Number.isInteger(past[name]), `${name} is whole seconds`)
  const soon = Math.floor(Date.now() / 1000) + 60
  t.match(await answer('--until', `${soon}`), { since: soon - 3600, until: soon, refusals: 6 })
  t.match(await answer('--until', '2026-01-01T12:00'), { since: Date.parse('2026-01-01T11:00Z') / 1000 })
  t.match(
    (await run('audit', 'stats', '--since', '2026-01-01', '--until', '2026-01-02')).stdout,
    /^0 refusals since 2026-01-01T00:00:00Z until 2026-01-02T00:00:00Z\n/,
  )
  const { stdout } = await run('audit', 'stats', '--since', '10m')
  t.match(stdout, /^6 refusals since .*\n\nreason +refusals\nexpired +4\n[\s\S]*\(no known key\) +2\n/)
  for (const words of [['stats'], ['stats', '--since', '15m'], ['list', '--since', '15m']]) {
    const call = ['audit', ...words, '--json']
    const { stdout } = await runLatchkey(t, externalEnv({ ...services, databaseUrl }, fastClock), ...call)
    const found = JSON.parse(stdout)
    t.equal(found.refusals ?? found.length, 6, `${words.join(' ')}: an age is by the clock of the entries`)
  }

  const mixed = [
    '2001:db8:0:1::1',
    '2001:DB8:0:1:f::9%eth0',
    '2001:db8::1',
    '::ffff:192.0.2.2',
    '::ffff:c000:201',
  ]
  for (const ip of mixed) await record(1, 'expired', 'apk_2', ip)
  t.strictSame((await answer()).addresses, [
    { value: '192.0.2.1', refusals: 6 },
    { value: '192.0.2.2', refusals: 2 },
    { value: '2001:db8:0:1::/64', refusals: 2 },
    { value: '2001:db8::/64', refusals: 1 },
  ])
})
