// Revoked means revoked while Redis cannot tell the other instances: the answer waits until it is true.
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { type Instance, makeKey, makeUser, startInstance } from '../instance.ts'
import { startPrivateRedis, startTcpProxy, useServices } from '../services/index.ts'
import { until } from './until.ts'

const cacheS = 2
/** Beyond the waiting itself: a Postgres statement, and a busy machine. */
const slackMs = 2000

const verify = (instance: Instance, token: string) => instance.ask('GET', '/v1/verify', { token })

/** Two instances on one Redis that can be taken away; `a` reaches it through a network that can fail. */
async function begin(t: Test, seconds = cacheS) {
  const redis = await startPrivateRedis(t)
  if (redis === null) return null
  const { databaseUrl, connectRedis } = await useServices(t)
  const network = await startTcpProxy(t, redis.url)
  const env = { KEY_CACHE_SECONDS: String(seconds) }
  const a = await startInstance(t, { databaseUrl, connectRedis, redisUrl: network.url }, env)
  const b = await startInstance(t, { databaseUrl, connectRedis, redisUrl: redis.url }, env)
  const user = await makeUser(a)
  const manager = await makeKey(a, { userId: user.id })
  /** Keys that `b` has in its cache. */
  const cachedKeys = async (count: number) => {
    const keys = await Promise.all(Array.from({ length: count }, () => makeKey(a, { userId: user.id })))
    for (const { token } of keys) t.equal((await verify(b, token)).status, 200)
    return keys
  }
  /** Changes the key on `a`, then asks `b` at once. */
  async function changeAndAsk(method: string, key: { id: string; token: string }, json?: object) {
    const startMs = performance.now()
    const changed = await a.ask(method, `/v1/keys/${key.id}`, { token: manager.token, ...(json && { json }) })
    const tookMs = performance.now() - startMs
    return { changed, tookMs, next: await verify(b, key.token) }
  }
  return { redis, network, a, b, cachedKeys, changeAndAsk }
}

t.test('with Redis frozen a change answers late and then holds on every instance', async (t) => {
  const begun = await begin(t)
  if (begun === null) return
  const { redis, a, b, cachedKeys, changeAndAsk } = begun
  const keys = await cachedKeys(6)
  await redis.freeze()
  const stories = await Promise.all(
    keys.map((key, i) =>
      i % 2 === 0 ? changeAndAsk('DELETE', key) : changeAndAsk('PATCH', key, { rate_limit_rpm: 77 }),
    ),
  )
  stories.forEach(({ changed, tookMs, next }, i) => {
    t.equal(changed.status, 200)
    t.ok(tookMs > 1000, 'it waited')
    t.ok(tookMs < cacheS * 1000 + slackMs, `no longer than copies are believed (${tookMs} ms)`)
    if (i % 2 === 0) t.equal(next.status, 401)
    else t.equal(next.headers.get('x-ratelimit-limit'), '77')
  })
  await redis.thaw()
  for (const [i, { token }] of keys.entries()) {
    for (const instance of [a, b]) {
      const { status, headers } = await verify(instance, token)
      if (i % 2 === 0) t.equal(status, 401, 'also when Redis is back')
      else t.equal(headers.get('x-ratelimit-limit'), '77', 'also when Redis is back')
    }
  }
})

t.test(
  'cut off from Redis, an instance answers a revocation when those that still reach it believe no old copy',
  async (t) => {
    const begun = await begin(t)
    if (begun === null) return
    const { network, cachedKeys, changeAndAsk } = begun
    const keys = await cachedKeys(20)
    network.blackHole()
    for (const { changed, tookMs, next } of await Promise.all(
      keys.map((key) => changeAndAsk('DELETE', key)),
    )) {
      t.equal(changed.status, 200)
      t.ok(tookMs > 1000 && tookMs < cacheS * 1000 + slackMs, `it waited (${tookMs} ms)`)
      t.equal(next.status, 401)
    }
  },
)

t.test('a Redis that comes back ends the wait early', async (t) => {
  const begun = await begin(t, 20)
  if (begun === null) return
  const { network, cachedKeys, changeAndAsk } = begun
  const [key] = await cachedKeys(1)
  network.blackHole()
  const story = changeAndAsk('DELETE', key!)
  await pause(700)
  await network.heal()
  const { changed, tookMs, next } = await story
  t.equal(changed.status, 200)
  t.ok(tookMs < 8000, `long before the 20 s (${tookMs} ms)`)
  t.equal(next.status, 401)
})

t.test(
  'with Redis killed a revocation answers late and holds, also when an empty Redis is back',
  async (t) => {
    const begun = await begin(t)
    if (begun === null) return
    const { redis, a, b, cachedKeys, changeAndAsk } = begun
    const [key] = await cachedKeys(1)
    await redis.kill()
    const { changed, tookMs, next } = await changeAndAsk('DELETE', key!)
    t.equal(changed.status, 200)
    t.ok(tookMs < cacheS * 1000 + slackMs)
    t.equal(next.status, 401)
    await redis.restart()
    for (const instance of [a, b]) t.equal((await verify(instance, key!.token)).status, 401)
  },
)

t.test('a revocation that only Redis told of holds although Redis then lost its memory', async (t) => {
  const begun = await begin(t, 30)
  if (begun === null) return
  const { redis, b, a, cachedKeys, changeAndAsk } = begun
  for (let round = 0; round < 5; round++) {
    const [key, other] = await cachedKeys(2)
    await a.ask('DELETE', `/v1/keys/${other!.id}`, { token: key!.token })
    await redis.kill()
    await redis.restart()
    // Both are back at it, with an empty Redis. `b` has not been asked for `other` since, and still has its copy.
    for (const instance of [a, b]) await untilShared(instance, key!.token)
    t.equal((await verify(b, other!.token)).status, 401)
    t.equal((await changeAndAsk('DELETE', key!)).next.status, 401)
  }
})

async function untilShared(instance: Instance, token: string): Promise<void> {
  await until('Redis counts again', async () => {
    await verify(instance, token)
    return instance.service.health().redis === 'shared'
  })
}
