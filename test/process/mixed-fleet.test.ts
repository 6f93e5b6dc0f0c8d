// Two instances on one database, only one of them with Redis: a change made on either holds on both
// once it is answered.
import t, { type Test } from 'tap'
import { deleteUser, type Instance, makeKey, makeUser, startInstance } from '../instance.ts'
import { startPrivateRedis, useServices } from '../services/index.ts'

const cacheS = 2

const verify = (instance: Instance, token: string) => instance.ask('GET', '/v1/verify', { token })

async function begin(t: Test, seconds = cacheS) {
  const redis = await startPrivateRedis(t)
  if (redis === null) return null
  const services = await useServices(t)
  const env = { KEY_CACHE_SECONDS: String(seconds) }
  const counting = await startInstance(t, { ...services, redisUrl: redis.url }, env)
  const alone = await startInstance(t, { ...services, redisUrl: '' }, env)
  const modes = [counting, alone].map(({ service }) => service.stores.counter.mode()).join()
  if (modes !== 'shared,memory') throw new Error(`they count in ${modes}`)
  const user = await makeUser(counting)
  const manager = await makeKey(counting, { userId: user.id })
  /** A key that the instance with Redis has just read. */
  const cachedKey = async () => {
    const key = await makeKey(counting, { userId: user.id, rateLimitRpm: 1000 })
    const { status } = await verify(counting, key.token)
    if (status !== 200) throw new Error(`a new key is ${status}`)
    return key
  }
  return { counting, alone, manager, cachedKey }
}

const fleet = await begin(t)

t.test(
  'a revocation without Redis is answered when the instance with Redis trusts no old copy',
  async (t) => {
    if (fleet === null) return
    const { counting, alone, manager, cachedKey } = fleet
    const keys: Awaited<ReturnType<typeof cachedKey>>[] = []
    for (let n = 0; n < 10; n++) keys.push(await cachedKey())
    // The copies are as fresh as possible when the change is made.
    for (const { token } of keys) await verify(counting, token)
    async function revokeAndAsk({ id, token }: { id: string; token: string }) {
      const startMs = performance.now()
      const { status } = await alone.ask('DELETE', `/v1/keys/${id}`, { token: manager.token })
      return { status, tookMs: performance.now() - startMs, next: await verify(counting, token) }
    }
    for (const { status, tookMs, next } of await Promise.all(keys.map(revokeAndAsk))) {
      t.equal(status, 200)
      t.ok(tookMs >= cacheS * 1000, `it waited (${tookMs} ms)`)
      t.equal(next.status, 401)
    }
  },
)

t.test('a limit changed and a user deleted without Redis hold on the instance with Redis', async (t) => {
  if (fleet === null) return
  const { counting, alone, manager, cachedKey } = fleet
  const { id, token, userId } = await cachedKey()
  const json = { rate_limit_rpm: 7 }
  t.equal((await alone.ask('PATCH', `/v1/keys/${id}`, { token: manager.token, json })).status, 200)
  t.equal((await verify(counting, token)).headers.get('x-ratelimit-limit'), '7')
  await deleteUser(alone, userId)
  t.equal((await verify(counting, token)).status, 401)
})

t.test(
  'what the instance with Redis revokes, the one without refuses at once: it caches nothing',
  async (t) => {
    const begun = await begin(t, 60)
    if (begun === null) return
    const { counting, alone, manager, cachedKey } = begun
    const { id, token } = await cachedKey()
    for (let n = 0; n < 3; n++) t.equal((await verify(alone, token)).status, 200)
    t.equal((await counting.ask('DELETE', `/v1/keys/${id}`, { token: manager.token })).status, 200)
    t.equal((await verify(alone, token)).status, 401)
  },
)
