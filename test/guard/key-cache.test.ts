// The cache of usable keys: bounded, forgetful of what is not used, and never wrong about whose key it gives.
import fc from 'fast-check'
import t from 'tap'
import { type CachedKey, createKeyCache, type KeyCache } from '../../src/guard/key-cache.ts'

const keyOf = (cache: KeyCache, token: string, readAtMs = 0): CachedKey => ({
  id: `apk_${token}`,
  userId: 'usr_1',
  rateLimitRpm: 1000,
  expiresAt: null,
  expiresAtMonoMs: Infinity,
  cacheName: cache.nameOf(token),
  hash: token,
  previousHash: null,
  version: 1,
  readAtMs,
  touchedS: 0,
  refreshing: false,
})

const given = (cache: KeyCache, token: string) => cache.get(cache.nameOf(token))

t.test("it never grows beyond its bound and never gives another token's key", async (t) => {
  const step = fc.record({
    does: fc.constantFrom('set' as const, 'get' as const, 'delete' as const),
    token: fc.nat(40).map(String),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 300 }), fc.integer({ min: 2, max: 20 }), (steps, entriesMax) => {
      const cache = createKeyCache(entriesMax)
      const deleted = new Set<string>()
      return steps.every(({ does, token }) => {
        if (does === 'set') cache.set(keyOf(cache, token))
        if (does === 'delete') cache.delete(cache.nameOf(token))
        if (does === 'set') deleted.delete(token)
        if (does === 'delete') deleted.add(token)
        const found = given(cache, token)
        const right = does === 'set' ? found?.hash === token : found === undefined || found.hash === token
        return right && !(found && deleted.has(token)) && cache.size <= entriesMax
      })
    }),
    { numRuns: 300 },
  )
  t.pass('for every course tried')
})

t.test('what is used stays while others come and go', async (t) => {
  const cache = createKeyCache(100)
  cache.set(keyOf(cache, 'busy'))
  cache.set(keyOf(cache, 'idle'))
  for (let i = 0; i < 1000; i++) {
    cache.set(keyOf(cache, `passing ${i}`))
    if (!given(cache, 'busy')) t.fail(`forgotten after ${i} others`)
  }
  t.equal(given(cache, 'busy')?.hash, 'busy')
  t.equal(given(cache, 'idle'), undefined, 'what is not used is forgotten')
  t.equal(given(cache, 'passing 999')?.hash, 'passing 999', 'the newest is there')
})

t.test('half of its bound is kept without fail', async (t) => {
  const cache = createKeyCache(100)
  const tokens = Array.from({ length: 50 }, (_, i) => `token ${i}`)
  for (const token of tokens) cache.set(keyOf(cache, token))
  for (const token of tokens) t.equal(given(cache, token)?.hash, token)
})

t.test('of two readings of a key the later one wins, in whatever order they arrive', async (t) => {
  fc.assert(
    fc.property(fc.array(fc.nat(1000), { minLength: 1 }), fc.array(fc.nat(30)), (moments, others) => {
      const cache = createKeyCache(10)
      for (const readAtMs of moments) cache.set(keyOf(cache, 'one', readAtMs))
      // Also one that has grown old meanwhile.
      for (const other of others.slice(0, 4)) cache.set(keyOf(cache, `other ${other}`))
      cache.set(keyOf(cache, 'one', 500))
      return given(cache, 'one')?.readAtMs === Math.max(500, ...moments)
    }),
  )
  t.pass('for every order tried')
})

t.test('a key deleted is not given any more', async (t) => {
  const cache = createKeyCache(4)
  for (const token of ['a', 'b', 'c']) cache.set(keyOf(cache, token))
  for (const token of ['a', 'b', 'c']) {
    cache.delete(cache.nameOf(token))
    t.equal(given(cache, token), undefined)
  }
  t.equal(cache.size, 0)
  cache.delete(cache.nameOf('never there'))
})

t.test('a name holds nothing of its token and means something in this cache only', async (t) => {
  const [cache, other] = [createKeyCache(10), createKeyCache(10)]
  const token = 'lk_0123456789abcdefghijklmnopqrstuvwxyz01'
  t.equal(cache.nameOf(token), cache.nameOf(token))
  t.not(cache.nameOf(token), other.nameOf(token))
  t.not(cache.nameOf(token), cache.nameOf(`${token} `))
  t.notOk(cache.nameOf(token).includes(token.slice(3, 9)))
})
