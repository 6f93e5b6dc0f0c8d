// The busiest keys as operators see them: out of Redis, with what Postgres knows of the keys.
import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { countersBody } from '../../src/ops/admin/counters-body.ts'
import { newId } from '../../src/rules/id.ts'
import { expectError } from '../api/expect-error.ts'
import { makeKey, makeUser, startInstance, startOps } from '../instance.ts'
import { until } from '../process/until.ts'
import { startPrivateRedis, startTcpProxy, useServices } from '../services/index.ts'
import { ada, startAdmin, verify } from './admin.ts'

const { instance, services, admin } = await startAdmin(t)
const redis = services.connectRedis()
const minuteNow = async () => Math.floor(Number((await redis.time())[0]) / 60)

/** Keys of one user, with these limits. */
async function makeKeys(on: typeof instance, ...limits: number[]) {
  const user = await makeUser(on, 'Ada')
  const keys = await Promise.all(
    limits.map((rateLimitRpm) =>
      makeKey(on, { userId: user.id, rateLimitRpm, name: `up to ${rateLimitRpm}` }),
    ),
  )
  return { user, keys }
}

/** What the work returns, unless a minute ends in it. */
async function inOneMinute<T>(work: (minute: number) => Promise<T>): Promise<T> {
  for (;;) {
    const minute = await minuteNow()
    const result = await work(minute)
    if ((await minuteNow()) === minute) return result
  }
}

/** The answer once it is of this minute, complete, and of a scan that began after now. */
const fresh = (path: string, asked = admin) => {
  const sinceS = Math.ceil(Date.now() / 1000)
  return until('the scan is complete', async () => {
    const { body } = await asked('GET', path)
    return body.complete && body.as_of >= sinceS && body
  })
}

t.test('the busiest keys of the minute, with owner, limit and what was refused', async (t) => {
  const { user, keys } = await makeKeys(instance, 5, 1000)
  const [small, large] = keys as [(typeof keys)[0], (typeof keys)[0]]
  const { body, minute } = await inOneMinute(async (minute) => {
    await redis.flushdb()
    for (const [key, hits] of [
      [small, 7],
      [large, 20],
    ] as const)
      for (let n = 0; n < hits; n++) await verify(instance, key.token)
    return { body: await fresh('counters?sort=used'), minute }
  })
  const of = ({ id, name, key_prefix }: typeof small) => ({
    ...{ id, name, key_prefix, user_id: user.id, user_name: 'Ada' },
  })
  t.strictSame(
    { ...body, as_of: 0 },
    {
      minute: minute * 60,
      resets_at: minute * 60 + 60,
      as_of: 0,
      source: 'redis',
      complete: true,
      scanned: 2,
      fault: null,
      lost: false,
      named: true,
      keys: [
        { ...of(large), used: 20, limit: 1000, limited: 0 },
        { ...of(small), used: 7, limit: 5, limited: 2 },
      ],
    },
  )
  const ids = async (query: string) =>
    (await admin('GET', `counters?${query}`)).body.keys.map(({ id }: { id: string }) => id)
  const byShare = await inOneMinute(async (minute) => {
    await redis.mset({ [`rl:{${small.id}}:${minute}`]: 7, [`rl:{${large.id}}:${minute}`]: 20 })
    await fresh('counters?sort=share')
    return { all: await ids('sort=share'), first: await ids('sort=share&limit=1') }
  })
  t.strictSame(byShare, { all: [small.id, large.id], first: [small.id] })
})

t.test('the last full minute, and keys that Postgres does not know', async (t) => {
  const { keys } = await makeKeys(instance, 1000)
  const stranger = newId('apk_')
  const ids = [stranger, keys[0]!.id]
  const body = await inOneMinute(async (minute) => {
    // A full minute is read once: if this one ends, it has to hold the same.
    for (const one of [minute - 1, minute])
      await redis.mset({ [`rl:{${keys[0]!.id}}:${one}`]: 3, [`rl:{${stranger}}:${one}`]: 4 })
    return until('complete', async () => {
      const { body } = await admin('GET', 'counters?minute=last')
      return body.complete && body
    })
  })
  // What the tests above counted may be in the last minute by now.
  const shown = body.keys.filter(({ id }: { id: string }) => ids.includes(id))
  t.match(shown, [
    { id: stranger, used: 4, name: null, user_name: null, limit: null, limited: null },
    { id: keys[0]!.id, used: 3, limit: 1000 },
  ])
  const byShare = (await admin('GET', 'counters?minute=last&sort=share')).body.keys
  const last = byShare.map(({ id }: { id: string }) => id).filter((id: string) => ids.includes(id))
  t.strictSame(last, ids.toReversed(), 'a key without a known limit uses no share of it')
})

t.test('a lookup shows what a key has used in this minute and the last', async (t) => {
  const { keys } = await makeKeys(instance, 2)
  const { id } = keys[0]!
  const { minute, counters } = await inOneMinute(async (minute) => {
    await redis.mset({ [`rl:{${id}}:${minute}`]: 3, [`rl:{${id}}:${minute - 1}`]: 1 })
    const { body } = await admin('POST', 'lookup', { query: id })
    return { minute, counters: body.counters }
  })
  t.strictSame(counters, {
    source: 'redis',
    current: { minute: minute * 60, used: 3, limit: 2, limited: 1, lost: false },
    last: { minute: minute * 60 - 60, used: 1, limit: 2, limited: 0, lost: false },
  })
})

t.test('a lookup shows what a key has used also when it is revoked', async (t) => {
  const { keys } = await makeKeys(instance, 2)
  const { id } = keys[0]!
  await admin('DELETE', `keys/${id}`)
  const body = await inOneMinute(async (minute) => {
    await redis.set(`rl:{${id}}:${minute}`, 3)
    return (await admin('POST', 'lookup', { query: id })).body
  })
  t.match(body, { state: 'revoked', counters: { current: { used: 3, limited: 1 } } })
})

t.test('no count is older than `as_of` says, which is in whole seconds', async (t) => {
  const lookedUp = {
    complete: true,
    scanned: 0,
    mode: 'shared' as const,
    fault: null,
    lost: false,
    named: true,
  }
  const view = { minute: 100, asOfMs: 6_000_999, ...lookedUp, keys: { used: [], share: [] } }
  t.match(countersBody(view, 'used', 10), { minute: 6000, resets_at: 6060, as_of: 6000 })
})

t.test('a query that makes no sense is refused by name', async (t) => {
  const wrong = { minute: 'next', sort: 'name', limit: '101' }
  for (const [param, value] of Object.entries(wrong))
    expectError(t, await admin('GET', `counters?${param}=${value}`), 'invalid_parameter', param)
})

async function startAlone(t: Test, redisUrl: string) {
  const own = await useServices(t)
  const proxy = await startTcpProxy(t, own.databaseUrl)
  const url = Object.assign(new URL(own.databaseUrl), { host: new URL(proxy.url).host }).href
  const alone = await startInstance(
    t,
    { ...own, databaseUrl: url, redisUrl },
    { OPS_TOKEN: `ada:${ada}` },
    {
      patience: 3,
    },
  )
  const ops = await startOps(t, alone)
  const ask = (method: string, path: string, json?: unknown) =>
    ops.ask(method, `/admin/${path}`, { token: ada, ...(json !== undefined && { json }) })
  return { alone, proxy, ask }
}

t.test('what Redis has lost within a minute is shown as far as this instance knows', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const { alone, ask } = await startAlone(t, server.url)
  const client = new Redis(server.url)
  t.teardown(() => client.disconnect())
  const { keys } = await makeKeys(alone, 5, 6)
  const [again, once] = keys as [(typeof keys)[0], (typeof keys)[0]]
  /** One more than the last if a minute ended meanwhile. */
  const lostIn = new Set<number>()
  const { statuses, body, found, usage, minute } = await inOneMinute(async (minute) => {
    const statuses = []
    for (const { token } of [again, again, once]) statuses.push(await verify(alone, token))
    await client.flushall()
    statuses.push(await verify(alone, again.token))
    lostIn.add(minute)
    const found = (await ask('POST', 'lookup', { query: again.id })).body
    const usage = (await ask('GET', `keys/${again.id}/usage`)).body
    return { statuses, body: await fresh('counters', ask), found, usage, minute }
  })
  t.strictSame(statuses, [200, 200, 200, 200])
  const counts = [
    { id: again.id, used: 3 },
    { id: once.id, used: 1 },
  ]
  t.match(body, { source: 'redis', lost: true, scanned: 1, keys: counts })
  t.match(found, { counters: { current: { lost: true }, last: { lost: lostIn.has(minute - 1) } } })
  t.ok(usage.incomplete.includes(minute * 60))
})

t.test('without Postgres there are ids and counts, without Redis what this instance knows', async (t) => {
  const server = await startPrivateRedis(t)
  if (!server) return
  const { alone, proxy, ask } = await startAlone(t, server.url)
  const { keys } = await makeKeys(alone, 5)
  const { id, token } = keys[0]!
  const hitsSeen = async () => {
    await verify(alone, token)
    const { body } = await ask('GET', 'counters?sort=share')
    return body.keys.length === 1 && body
  }
  t.match(await until('Redis is read', hitsSeen), { source: 'redis', named: true, keys: [{ id }] })
  proxy.blackHole()
  const unnamed = await until('Postgres is down', async () => {
    const body = await hitsSeen()
    return body && !body.named && body
  })
  t.match(unnamed, { source: 'redis', keys: [{ id, name: null, limit: null }] })
  proxy.heal()
  await server.kill()
  const local = await until('Redis is down', async () => {
    const body = await hitsSeen()
    return body && body.source === 'local' && body.named && body.fault !== null && body
  })
  t.match(local, { complete: false, keys: [{ id, limit: 5 }] })
})

t.test('in memory, the last minute is known after a restart, and what a killed process lost', async (t) => {
  const own = await useServices(t)
  const proxy = await startTcpProxy(t, own.databaseUrl)
  const throughProxy = Object.assign(new URL(own.databaseUrl), { host: new URL(proxy.url).host }).href
  let nowMs = Math.floor(Date.now() / 60_000) * 60_000 - 3_600_000
  t.intercept(Date, 'now', { value: () => nowMs })
  const start = (databaseUrl: string) =>
    startInstance(t, { ...own, databaseUrl, redisUrl: '' }, { OPS_TOKEN: `ada:${ada}` })
  async function lastMinute(of: typeof instance, id: string) {
    const ops = await startOps(t, of)
    const { body } = await ops.ask('GET', '/admin/counters?minute=last', { token: ada })
    const found = await ops.ask('POST', '/admin/lookup', { token: ada, json: { query: id } })
    return { body, last: found.body.counters.last }
  }

  const first = await start(own.databaseUrl)
  const { keys } = await makeKeys(first, 1000)
  const { id, token } = keys[0]!
  for (let n = 0; n < 3; n++) await verify(first, token)
  await first.close()
  nowMs += 60_000
  const second = await start(throughProxy)
  const kept = await lastMinute(second, id)
  t.match(kept.body, { source: 'memory', complete: true, lost: false, keys: [{ id, used: 3 }] })
  t.match(kept.last, { used: 3, lost: false })

  await verify(second, token)
  // For Postgres, it is killed.
  proxy.cut()
  proxy.refuse()
  nowMs += 60_000
  const cut = await lastMinute(await start(own.databaseUrl), id)
  t.match(cut.body, { lost: true, keys: [] })
  t.match(cut.last, { used: 0, lost: true })
  await proxy.heal()
})
