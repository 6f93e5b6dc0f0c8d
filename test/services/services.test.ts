import { EventEmitter, once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { Cluster, type Redis } from 'ioredis'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import {
  startPrivatePostgres,
  startPrivateRedis,
  startRedisCluster,
  startTcpProxy,
  useServices,
} from './index.ts'

const services = await useServices(t)

function open(t: Test, url: string): postgres.Sql {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  return sql
}

/** Whether it settles within the time; what a frozen server must not do. */
const settles = (work: Promise<unknown>, ms: number) =>
  Promise.race([
    work.then(
      () => true,
      () => true,
    ),
    pause(ms, false),
  ])

t.test('each database is empty and sees nothing of another', async (t) => {
  const first = open(t, services.databaseUrl)
  const second = open(t, await services.createDatabase())
  await first`create table mine (id int)`
  const tables = await second`select 1 from pg_tables where schemaname = 'public'`
  t.equal(tables.length, 0)
  t.equal((await first`select 1 from pg_tables where schemaname = 'public'`).length, 1)
})

t.test('a database is dropped at teardown although a connection to it is open', async (t) => {
  let url = ''
  let sql: postgres.Sql | undefined
  await t.test('makes one and leaves a connection open', async (t) => {
    url = (await useServices(t)).databaseUrl
    sql = postgres(url, { max: 1 })
    await sql`select 1`
  })
  await t.rejects(open(t, url)`select 1`, { code: '3D000' })
  await sql!.end({ timeout: 1 })
})

t.test('the Postgres of the run commits as production does', async (t) => {
  const sql = open(t, services.databaseUrl)
  const [row] = await sql`show synchronous_commit`
  t.equal(row?.synchronous_commit, 'on')
})

t.test('all Redis connections of a file reach one server, which runs Lua', async (t) => {
  const script = `
    local count = redis.call('INCRBY', KEYS[1], tonumber(ARGV[1]))
    redis.call('EXPIRE', KEYS[1], 120)
    redis.call('SET', KEYS[2], '7', 'EX', 600)
    local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
    return { count, seen[1], seen[2], seen[3] == false and 1 or 0, tonumber(redis.call('TIME')[1]) }`
  const [one, other] = [services.connectRedis(), services.connectRedis()]
  const keys = ['count', 'version', 'absent'].map((name) => `{${process.pid}}:${name}`)

  const [count, mine, version, absent, timeS] = (await one.eval(script, 3, ...keys, 5)) as number[]
  t.same([count, mine, version, absent], [5, '5', '7', 1])
  t.ok(Math.abs(timeS! - Date.now() / 1000) < 5, 'TIME is the time')
  t.equal(await one.ttl(keys[0]!), 120)

  const sha = String(await one.script('LOAD', script))
  t.match(await other.evalsha(sha, 3, ...keys, 2), [7, '7', '7'])
  t.same((await one.mget(keys)).slice(0, 2), ['7', '7'])
  await one.del(keys)
})

t.test('a script that the server has lost is NOSCRIPT', async (t) => {
  // Not on the shared Redis: other files' scripts would go as well.
  const inProcess = services.redisUrl === null
  const server = inProcess ? null : await startPrivateRedis(t)
  if (!inProcess && !server) return
  const redis = services.connectRedis(server ? { port: server.port } : {})
  const sha = String(await redis.script('LOAD', 'return 1'))
  t.equal(await redis.evalsha(sha, 0), 1)
  await redis.script('FLUSH')
  await t.rejects(redis.evalsha(sha, 0), /^NOSCRIPT/)
})

t.test('options given to connectRedis hold', async (t) => {
  const redis = services.connectRedis({ keyPrefix: 'prefixed:', lazyConnect: true })
  t.equal(redis.status, 'wait')
  await redis.set(`${process.pid}`, '1')
  t.equal(await services.connectRedis().get(`prefixed:${process.pid}`), '1')
  await redis.del(`${process.pid}`)
})

t.test('a private Redis is frozen, thawed, killed and restarted at its address', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const redis = services.connectRedis({ host: '127.0.0.1', port: server.port })
  await redis.set('k', '1')

  await server.freeze()
  const answer = redis.get('k')
  t.notOk(await settles(answer, 100), 'nothing is answered while it is frozen')
  await server.thaw()
  t.equal(await answer, '1')

  const { pid } = server
  redis.on('error', () => {})
  const closed = once(redis, 'close')
  await server.kill()
  await closed
  await server.restart()
  t.not(server.pid, pid)
  t.equal(await redis.get('k'), null, 'it is back without its data')
})

t.test('a private Redis that is frozen can be stopped', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  await server.freeze()
  await server.stop()
  t.throws(() => process.kill(server.pid, 0), { code: 'ESRCH' })
})

t.test(
  'a private Postgres is frozen with its backends, thawed, killed and restarted at its address',
  async (t) => {
    const server = await startPrivatePostgres(t)
    const sql = open(t, server.url)
    await sql`create table kept (id int)`

    await server.freeze()
    const answer = sql`select 1 as one`.execute()
    t.notOk(await settles(answer, 100), 'nothing is answered while it is frozen')
    await server.thaw()
    t.same(await answer, [{ one: 1 }])

    await server.kill()
    await t.rejects(sql`select 1`.execute())
    await server.restart()
    t.same(await open(t, server.url)`select count(*)::int as kept from kept`, [{ kept: 0 }], 'recovered')
    await server.kill('SIGINT')
    t.throws(() => process.kill(server.pid, 0), { code: 'ESRCH' }, 'an orderly end works too')
  },
)

t.test('the proxy delays answers, holds them in a black hole, and heals', async (t) => {
  const { proxy, ask } = await proxied(t)
  t.equal(await ask(), 'SELECT 1')
  t.equal(proxy.connections, 1)

  proxy.delay(100)
  const begunMs = performance.now()
  await ask()
  t.ok(performance.now() - begunMs >= 99, 'late by the delay')

  proxy.blackHole()
  const answer = ask()
  t.notOk(await settles(answer, 200), 'nothing comes through')
  await proxy.heal()
  t.equal(await answer, 'SELECT 1', 'what was held goes on')
})

t.test('the proxy holds a connection made in a black hole until it heals', async (t) => {
  const { proxy, ask } = await proxied(t)
  proxy.blackHole()
  const answer = ask()
  t.notOk(await settles(answer, 100))
  await proxy.heal()
  t.equal(await answer, 'SELECT 1')
})

t.test('the proxy cuts connections and refuses new ones until it heals', async (t) => {
  const { proxy, ask, events } = await proxied(t)
  await ask()
  proxy.refuse()
  await ask()
  const gone = once(events, 'close')
  proxy.cut()
  t.equal(proxy.connections, 0)
  // postgres.js 3.4.9 never settles a query that is made between a connection's error and its close.
  await gone
  await t.rejects(once(connect(proxy.port, '127.0.0.1'), 'connect'), { code: 'ECONNREFUSED' })
  await t.rejects(ask())
  await proxy.heal()
  t.equal(await ask(), 'SELECT 1')
})

/** Over Postgres, because every source has a real one. */
async function proxied(t: Test) {
  const proxy = await startTcpProxy(t, services.databaseUrl)
  const events = new EventEmitter()
  const onclose = () => events.emit('close')
  const sql = postgres(proxy.url, { max: 1, backoff: false, fetch_types: false, onclose })
  t.teardown(() => sql.end({ timeout: 0 }))
  const ask = async () => {
    const { command, count } = await sql`select 1`
    return `${command} ${count}`
  }
  return { proxy, ask, events }
}

t.test('the cluster answers for keys in all three masters', async (t) => {
  const cluster = await startRedisCluster(t, { masters: 3 })
  if (!cluster) return
  t.equal(cluster.urls.length, 3)
  const client = new Cluster(cluster.urls)
  t.teardown(() => client.disconnect())

  const keys = Array.from({ length: 60 }, (_, i) => `{apk_${i}}`)
  await Promise.all(keys.map((key) => client.set(key, key)))
  t.same(await Promise.all(keys.map((key) => client.get(key))), keys)
  const sizes = await Promise.all(client.nodes('master').map((node: Redis) => node.dbsize()))
  t.equal(sizes.length, 3)
  t.ok(
    sizes.every((size) => size > 0),
    'every master holds some',
  )
  await t.rejects(
    client.mget('{apk_1}', '{apk_2}', '{apk_3}', '{apk_4}'),
    'keys of several slots at once are refused',
  )
})
