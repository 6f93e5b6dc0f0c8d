// A revocation holds even if the instance that revokes cannot reach the Redis that the others use:
// its answer waits until it does.
import t, { type Test } from 'tap'
import { type Instance, makeKey, makeUser, startInstance } from '../instance.ts'
import { startPrivateRedis, startTcpProxy, useServices } from '../services/index.ts'
import { until } from './until.ts'

const cacheS = 2
const longS = 60
/** Redis counts as down after half a second, and Postgres after five: enough for a busy machine. */
const limits = { patience: 5 }

const verify = (instance: Instance, token: string) => instance.ask('GET', '/v1/verify', { token })

/** Two instances on one Redis; `a` reaches it through a network that can fail. */
async function begin(t: Test, seconds = cacheS) {
  const redis = await startPrivateRedis(t)
  if (redis === null) return null
  const { databaseUrl, connectRedis } = await useServices(t)
  const network = await startTcpProxy(t, redis.url)
  const env = { KEY_CACHE_SECONDS: String(seconds) }
  const a = await startInstance(t, { databaseUrl, connectRedis, redisUrl: network.url }, env, limits)
  const b = await startInstance(t, { databaseUrl, connectRedis, redisUrl: redis.url }, env, limits)
  const user = await makeUser(a)
  const manager = await makeKey(a, { userId: user.id })
  /** Keys that `b` has in its cache. */
  const cachedKeys = async (count: number) => {
    const keys = await Promise.all(Array.from({ length: count }, () => makeKey(a, { userId: user.id })))
    for (const { token } of keys) t.equal((await verify(b, token)).status, 200)
    return keys
  }
  /** Revokes the key on `a`, then asks `b` at once. */
  async function revokeAndAsk(key: { id: string; token: string }) {
    const startMs = performance.now()
    const { status } = await a.ask('DELETE', `/v1/keys/${key.id}`, { token: manager.token })
    const tookMs = performance.now() - startMs
    return { status, tookMs, next: await verify(b, key.token) }
  }
  /** Until `a` has revoked the key, and cannot tell Redis. */
  const untilHeldBack = ({ id }: { id: string }) =>
    until('it is revoked without Redis', async () => {
      const { counter, keys } = a.service.stores
      return counter.mode() === 'local' && (await keys.get(id, user.id))?.revokedAt
    })
  return { network, cachedKeys, revokeAndAsk, untilHeldBack }
}

t.test(
  'cut off from Redis, an instance answers a revocation when no other instance trusts an old copy',
  async (t) => {
    const begun = await begin(t)
    if (begun === null) return
    const { network, cachedKeys, revokeAndAsk } = begun
    const keys = await cachedKeys(20)
    network.blackHole()
    for (const { status, tookMs, next } of await Promise.all(keys.map((key) => revokeAndAsk(key)))) {
      t.equal(status, 200)
      t.ok(tookMs > 1000, `it waited (${tookMs} ms)`)
      t.equal(next.status, 401)
    }
  },
)

t.test('a Redis that comes back ends the wait early', async (t) => {
  const begun = await begin(t, longS)
  if (begun === null) return
  const { network, cachedKeys, revokeAndAsk, untilHeldBack } = begun
  const [key] = await cachedKeys(1)
  network.blackHole()
  const story = revokeAndAsk(key!)
  await untilHeldBack(key!)
  await network.heal()
  const { status, tookMs, next } = await story
  t.equal(status, 200)
  t.ok(tookMs < longS * 1000, `before the copies are too old (${tookMs} ms)`)
  t.equal(next.status, 401)
})
