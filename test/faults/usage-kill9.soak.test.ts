// Usage survives what its instances do not: one is killed (kill -9) while it stores a minute, and
// another one stores the whole. Where Redis is lost within a minute, the minute says so.
import { Redis } from 'ioredis'
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { builtCli } from '../process/built.ts'
import { externalEnv, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { openDatabase, startPrivateRedis, useServices } from '../services/index.ts'
import { recordFigure } from '../soak.ts'
import { untilShared, verify } from './fleet.ts'

const keysMade = 12_000

t.test('an instance killed while it stores a minute is replaced by another one', async (t) => {
  const server = await startPrivateRedis(t)
  if (server === null) return
  const services = { ...(await useServices(t)), redisUrl: server.url }
  const office = await startInstance(t, services)
  const { userId, id: last } = await makeCaller(office)
  await office.close()
  const sql = openDatabase(t, services.databaseUrl, 4)
  await sql`
    insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix)
    select 'apk_0' || n, ${userId}, 'a key', sha256(n::text::bytea), 'none', 'lk_none'
    from generate_series(1, ${keysMade}::int) n`
  const redis = new Redis(server.url)
  t.teardown(() => redis.disconnect())

  await builtCli()
  // The minute that has just ended; in this one is time enough to store it twice.
  const nowS = async () => Number((await redis.time())[0])
  await until('it is early in a minute', async () => (await nowS()) % 60 < 25)
  const minute = Math.floor((await nowS()) / 60) - 1
  const counters = redis.pipeline()
  for (let n = 1; n <= keysMade; n++) counters.set(`rl:{apk_0${n}}:${minute}`, n, 'EX', 300)
  counters.set(`rl:{${last}}:${minute}`, 7, 'EX', 300)
  await counters.exec()
  const start = sql`to_timestamp(${minute * 60})`
  await sql`delete from usage_minutes`

  const stored = async () => {
    const [row] = await sql`select count(*)::int as keys, sum(requests)::int as requests from key_usage
      where starts_at = ${start}`
    return row!
  }
  let victim!: Serving
  let partly = NaN
  const rolledBack = new Error('rolled back')
  const storing = sql.begin(async (tx) => {
    // An instance that stores this key waits for this transaction, and gets no further.
    await tx`insert into key_usage (starts_at, key_id, requests, limited) values (${start}, ${last}, 0, 0)`
    victim = await serveLatchkey(t, externalEnv(services))
    await until('it is in the middle of its pass', async () => {
      const waiting = await sql`select from pg_stat_activity
        where application_name = 'latchkey usage' and wait_event = 'transactionid'`
      return waiting.length > 0
    })
    await startInstance(t, services)
    victim.kill('SIGKILL')
    t.equal((await victim.ended).signal, 'SIGKILL')
    partly = (await stored()).keys
    t.ok(partly < keysMade, 'it has stored a part at most')
    throw rolledBack
  })
  await t.rejects(storing, rolledBack)

  await until('another one has stored the minute', async () => {
    const [row] = await sql`select from usage_minutes where starts_at = ${start} and is_done`
    return row !== undefined
  })
  const requests = (keysMade * (keysMade + 1)) / 2 + 7
  const whole = await stored()
  t.strictSame(whole, { keys: keysMade + 1, requests })
  const [known] = await sql`select stored::int, reported::int from usage_minutes where starts_at = ${start}`
  const inTime = (await nowS()) < (minute + 2) * 60
  if (inTime) t.strictSame(known, { stored: requests, reported: 0 }, 'complete')
  recordFigure(t, 'usage-kill9', { keys: whole.keys, requests, partly, stored: whole.requests })
})

t.test('what Redis loses is reported by the instances when they stop', async (t) => {
  const server = await startPrivateRedis(t)
  if (server === null) return
  const services = { ...(await useServices(t)), redisUrl: server.url }
  const office = await startInstance(t, services)
  const { token } = await makeCaller(office)
  await office.close()
  const instances = await Promise.all([0, 1].map(() => serveLatchkey(t, externalEnv(services))))
  let counted = 0
  const send = async (count: number) => {
    for (let n = 0; n < count; n++) {
      const { status } = await verify(instances[n % 2]!.url, token)
      if (status === 200) counted++
    }
  }
  await send(20)
  await server.kill()
  await send(10)
  await server.restart()
  await untilShared(instances)
  await send(6)
  for (const instance of instances) instance.kill('SIGTERM')
  await Promise.all(instances.map(({ ended }) => ended))

  const sql = openDatabase(t, services.databaseUrl, 4)
  const [sums] = await sql`
    select sum(reported)::int as reported, coalesce(sum(stored), 0)::int as stored,
      count(*) filter (where stored is null or stored < reported)::int as incomplete
    from usage_minutes where reported > 0`
  t.equal(sums!.reported, counted, 'each request is reported once')
  t.ok(sums!.stored >= 6 && sums!.stored < counted, 'what is stored was counted in Redis')
  t.ok(sums!.incomplete > 0)
  const { reported, stored, incomplete } = sums!
  recordFigure(t, 'usage-redis-lost', { counted, reported, stored, incomplete })
})
