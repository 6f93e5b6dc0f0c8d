// What only a whole instance shows of its guard: which pool does what, what is looked up, and what
// happens when Redis comes back.
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import FakeTimers from '@sinonjs/fake-timers'
import { pino } from 'pino'
import t from 'tap'
import { readConfig } from '../../src/config.ts'
import { openGuarding } from '../../src/process/guarding.ts'
import { Redis } from '../../src/redis/ioredis.ts'
import { versionKey } from '../../src/redis/scripts.ts'
import { newId } from '../../src/rules/id.ts'
import { poolBounds } from '../../src/wiring/pools.ts'
import { cachedKey } from '../guard/gated.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { openDatabase, startPrivateRedis, startTcpProxy, useServices } from '../services/index.ts'
import { lockWaitOf } from './held-at-start.ts'
import { externalEnv } from './latchkey.ts'
import { until } from './until.ts'

const services = await useServices(t)
const sql = openDatabase(t, services.databaseUrl, 2)

t.test(
  'a change made while Redis was unreachable applies from the first request after Redis is back',
  async (t) => {
    const redis = await startPrivateRedis(t)
    if (redis === null) return
    const network = await startTcpProxy(t, redis.url)
    // Without the rule, the copy would be trusted for the rest of this minute.
    const env = { KEY_CACHE_SECONDS: '60' }
    const instance = await startInstance(t, { ...services, redisUrl: network.url }, env)
    const { id, token } = await makeCaller(instance)
    const verify = async () => (await instance.ask('GET', '/v1/verify', { token })).status
    t.equal(await verify(), 200)
    const reader = new Redis(redis.url)
    t.teardown(() => reader.disconnect())
    // A lease alone would not let the instance trust its copy.
    await until('its version is confirmed', async () =>
      /^\d+$/.test((await reader.get(versionKey(id))) ?? ''),
    )
    t.equal(await verify(), 200)
    const { counter, instances } = instance.service.stores
    const fences: number[] = []
    const report = instances.report
    instances.report = (one, asked) => {
      fences.push(asked.fence)
      return report(one, asked)
    }
    await instances.fences.raise()
    await until('it has reported a fence', () => fences.at(-1)! > 0)
    network.refuse()
    network.cut()
    await until('Redis is unreachable', () => counter.mode() === 'local')
    // As another instance does whose publication Redis has lost.
    await sql`update api_keys set revoked_at = now(), version = version + 1 where id = ${id}`
    const reports = fences.length
    await until('it has just reported itself', () => fences.length > reports)
    await network.heal()
    await until('Redis is back', () => counter.mode() === 'shared')
    t.equal(await verify(), 401)
    await until('it learns a fence before it uses an old copy', () => fences.slice(reports).includes(0))
  },
)

t.test('a key that nobody has changed is not looked up again', async (t) => {
  const instance = await startInstance(t, services)
  const { stores } = instance.service
  // The write of a last use would confirm the key too.
  const touch = stores.keys.touch
  stores.keys.touch = async (...given) => ({ ...(await touch(...given)), confirmed: [] })
  const find = stores.keys.findByHash
  let lookups = 0
  stores.keys.findByHash = (hashes) => {
    lookups++
    return find(hashes)
  }
  const { id, token } = await makeCaller(instance)
  const verify = () => instance.ask('GET', '/v1/verify', { token })
  const reportedAt = async () => {
    const [row] = await sql`select max(seen_at)::text as at from instances`
    return row!.at as string
  }
  const afterReport = async () => {
    const last = await reportedAt()
    await until('it has reported itself', async () => (await reportedAt()) > last)
  }
  await verify()
  // Its second read: without the other confirmation, a look-up.
  await until('it has been read twice', () => lookups === 2)
  // By then, a copy that nothing has renewed is older than KEY_CACHE_SECONDS.
  for (let n = 0; n < 7; n++) await afterReport()
  t.equal((await verify()).status, 200)
  t.equal(lookups, 2)
  await sql`update api_keys set rate_limit_rpm = 77 where id = ${id}`
  await until('a change by hand is seen', async () => {
    return (await verify()).headers.get('x-ratelimit-limit') === '77'
  })
})

t.test('a token with our prefix is looked up, whatever its form', async (t) => {
  const instance = await startInstance(t, services)
  const { token } = await makeCaller(instance)
  const { keys } = instance.service.stores
  const find = keys.findByHash
  let asked = 0
  keys.findByHash = (hashes) => {
    asked += hashes.length
    return find(hashes)
  }
  const last = token.at(-1) === '0' ? '1' : '0'
  const malformed = ['lk_', 'lk_x', `${token}0`, `${token.slice(0, -1)}${last}`, `lk_${'~'.repeat(38)}`]
  for (const one of malformed) {
    asked = 0
    t.equal((await instance.ask('GET', '/v1/verify', { token: one })).status, 401)
    t.equal(asked, 1, one)
  }
})

t.test('waits for Postgres and the time until every instance sees a change are in seconds', async (t) => {
  const instance = await startInstance(t, services)
  const { id, token } = await makeCaller(instance)
  const sumOf = async (series: string) => {
    const line = new RegExp(`^latchkey_${series} (\\S+)$`, 'm')
    return Number((await instance.service.metrics.registry.metrics()).match(line)?.[1])
  }
  const change = async () =>
    (await instance.ask('PATCH', `/v1/keys/${id}`, { token, json: { name: 'new' } })).status
  const startMs = performance.now()
  t.equal(await change(), 200)
  const tookS = (performance.now() - startMs) / 1000
  const publishedS = await sumOf('publish_seconds_sum')
  t.ok(publishedS > 0 && publishedS <= tookS, `${publishedS} of ${tookS} s`)

  const before = await sumOf('postgres_wait_seconds_sum{pool="management"}')
  let changes: Promise<number[]> | undefined
  await sql.begin(async (tx) => {
    await tx`select from api_keys where id = ${id} for update`
    // More than there are connections for.
    changes = Promise.all(Array.from({ length: poolBounds.management.max }, change))
    await lockWaitOf(sql, '%change_key%')
    await pause(500)
  })
  t.same(new Set(await changes), new Set([200]))
  const waitedS = (await sumOf('postgres_wait_seconds_sum{pool="management"}')) - before
  t.ok(waitedS > 0.2 && waitedS < 60, `${waitedS} s`)
})

t.test('minutes of usage that are found to be incomplete are counted', async (t) => {
  const instance = await startInstance(t, services)
  const counted = async () => {
    const text = await instance.service.metrics.registry.metrics()
    return Number(text.match(/^latchkey_usage_incomplete_total (\d+)$/m)?.[1])
  }
  t.equal(await counted(), 0, 'from the start')
  const { counter } = instance.service.stores
  const now = counter.now
  // As for a machine that slept.
  counter.now = async () => (await now()) + 600_000
  await until('it has found one that may have expired', () =>
    instance.log.some(({ msg }) => msg === 'usage of this minute is incomplete'),
  )
  t.equal(await counted(), 1)
})

t.test('refusals are written on connections of their own', async (t) => {
  const instance = await startInstance(t, services)
  t.equal((await instance.ask('GET', '/v1/verify')).status, 401)
  const writers = await sql`select distinct application_name as name from pg_stat_activity
    where datname = current_database() and query ~ 'insert into audit_log' and pid <> pg_backend_pid()`
  t.same(
    writers.map(({ name }) => name),
    ['latchkey audit'],
  )
})

t.test('refusals that wait for a connection when it closes are written', async (t) => {
  const databaseUrl = await services.createDatabase()
  const env = externalEnv({ ...services, databaseUrl })
  const guarding = await openGuarding(readConfig(env), pino({ level: 'silent' }), {
    role: 'serve',
    patience: 20,
  })
  const sql = openDatabase(t, databaseUrl, 4)
  const refusal = {
    ...{ method: 'GET', path: '/', ip: null, userAgent: null, details: null },
    keyId: null,
    userId: null,
  }
  const waiting = async () => {
    const [row] = await sql`select count(*)::int as n from pg_stat_activity
      where cardinality(pg_blocking_pids(pid)) > 0 and datname = current_database()`
    return row!.n as number
  }
  const recorded: Promise<void>[] = []
  let closed = Promise.resolve()
  await sql.begin(async (tx) => {
    await tx`lock table audit_log in share mode`
    for (const n of [1, 2, 3]) {
      recorded.push(guarding.record({ ...refusal, requestId: newId('req_'), reason: 'missing_header' }))
      if (n < 3) await until('it waits', async () => (await waiting()) === n)
    }
    closed = guarding.close()
    // As long as it takes to close everything else.
    await pause(500)
  })
  await closed
  t.equal((await Promise.allSettled(recorded)).filter(({ status }) => status === 'fulfilled').length, 3)
})

t.test('connections and deadlines are those in the table of docs/architecture.md', async (t) => {
  const docs = readFileSync(new URL('../../docs/architecture.md', import.meta.url), 'utf8')
  const row = docs.split('\n').find((line) => line.startsWith('| Postgres connections |'))
  const { lookups, management, audit, background, instances, usage, rollups, operator } = poolBounds
  const all = [lookups, management, audit, background, instances, usage, rollups, operator]
  t.match(row, all.map(({ timeoutMs }) => `${timeoutMs / 1000} s`).join(', '))
  const connections = row!.match(
    /\d+ (look-ups|management|audit|background|instances|usage|rollups|operator)/g,
  )
  t.strictSame(
    connections!.map((text) => Number.parseInt(text, 10)),
    all.map(({ max }) => max),
  )
})

t.test('the log says what is not written while Postgres is down, and when it is again', async (t) => {
  const network = await startTcpProxy(t, services.databaseUrl)
  const instance = await startInstance(t, { ...services, databaseUrl: network.url })
  const { id } = await makeCaller(instance)
  network.refuse()
  // Usage has something to store once a minute.
  const { counter } = instance.service.stores
  const now = counter.now
  counter.now = async () => (await now()) + 60_000
  const levels = { warn: 40, info: 30 }
  const said = (level: keyof typeof levels, about: RegExp) =>
    instance.log.filter((line) => line.level === levels[level] && about.test(String(line.msg)))
  const tasks = [/^last uses are/, /^this instance .* itself/, /^usage is/]
  await until('it says so', () => {
    // Again and again, because a connection may have been opened just before.
    network.cut()
    instance.service.lastUsed.note(cachedKey({ id }), Math.floor(Date.now() / 1000))
    return tasks.every((about) => said('warn', about).length > 0)
  })
  await network.heal()
  await until('it says that all is well', () => tasks.every((about) => said('info', about).length > 0))
  for (const about of tasks) {
    const [down] = said('warn', about)
    t.match(down, { reason: /\S/, msg: /; will be tried again$/ })
    t.match(said('info', about)[0]!.msg, / again$/)
  }
})

t.test('what is closed leaves no timer behind, in an application that goes on', async (t) => {
  const clock = FakeTimers.install({ toFake: ['setInterval', 'clearInterval'] })
  t.teardown(() => clock.uninstall())
  const instance = await startInstance(t, services)
  t.ok(clock.countTimers() > 0)
  await instance.close()
  t.equal(clock.countTimers(), 0)
})

t.test('an instance that counts in memory stores its counts when it stops', async (t) => {
  const alone = { databaseUrl: services.databaseUrl, redisUrl: null, connectRedis: () => undefined as never }
  const first = await startInstance(t, alone)
  const { id, token } = await makeCaller(first)
  for (let n = 0; n < 3; n++) await first.ask('GET', '/v1/verify', { token })
  await first.close()
  const second = await startInstance(t, alone)
  const { body } = await second.ask('GET', `/v1/keys/${id}/usage`, { token })
  const requests = body.data.map((one: { requests: number }) => one.requests)
  t.equal(
    requests.reduce((sum: number, count: number) => sum + count),
    4,
    'and the request that reads them',
  )
})
