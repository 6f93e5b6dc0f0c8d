// The cache of usable keys: bounded, keeps what is used, and never returns another token's key.
import fc from 'fast-check'
import t from 'tap'
import { createKeyCache, type KeyCache } from '../../src/guard/key-cache.ts'
import { cachedKey } from './gated.ts'

const keyOf = (cache: KeyCache, token: string, readAtMs = 0) =>
  cachedKey({ id: `apk_${token}`, cacheName: cache.nameOf(token), hash: token, readAtMs })

const found = (cache: KeyCache, token: string) => cache.get(cache.nameOf(token))

t.test("the cache never grows beyond its bound and never returns another token's key", async (t) => {
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
        const present = found(cache, token)
        const right =
          does === 'set' ? present?.hash === token : present === undefined || present.hash === token
        return right && !(present && deleted.has(token)) && cache.size() <= entriesMax
      })
    }),
    { numRuns: 300 },
  )
  t.pass('for every sequence tried')
})

t.test('what is used stays while others come and go', async (t) => {
  const cache = createKeyCache(100)
  cache.set(keyOf(cache, 'busy'))
  cache.set(keyOf(cache, 'idle'))
  for (let i = 0; i < 1000; i++) {
    cache.set(keyOf(cache, `passing ${i}`))
    if (!found(cache, 'busy')) t.fail(`evicted after ${i} others`)
  }
  t.equal(found(cache, 'busy')?.hash, 'busy')
  t.equal(found(cache, 'idle'), undefined, 'what is not used is evicted')
  t.equal(found(cache, 'passing 999')?.hash, 'passing 999', 'the newest is there')
})

t.test('at least half of its bound always stays cached', async (t) => {
  const cache = createKeyCache(100)
  const tokens = Array.from({ length: 50 }, (_, i) => `token ${i}`)
  for (const token of tokens) cache.set(keyOf(cache, token))
  for (const token of tokens) t.equal(found(cache, token)?.hash, token)
})

t.test('the later reading of a key wins, whatever the order in which readings arrive', async (t) => {
  fc.assert(
    fc.property(fc.array(fc.nat(1000), { minLength: 1 }), fc.array(fc.nat(30)), (moments, others) => {
      const cache = createKeyCache(10)
      for (const readAtMs of moments) cache.set(keyOf(cache, 'one', readAtMs))
      // Also against one in the old generation.
      for (const other of others.slice(0, 4)) cache.set(keyOf(cache, `other ${other}`))
      cache.set(keyOf(cache, 'one', 500))
      return found(cache, 'one')?.readAtMs === Math.max(500, ...moments)
    }),
  )
  t.pass('for every order tried')
})

t.test('a key that moves between the generations counts once', async (t) => {
  const cache = createKeyCache(6)
  for (const token of ['a', 'b', 'c', 'd']) cache.set(keyOf(cache, token))
  t.equal(cache.size(), 4)
  found(cache, 'a')
  t.equal(cache.size(), 4)
  cache.set(keyOf(cache, 'b', 1))
  t.equal(cache.size(), 4)
})

t.test('a deleted key is not found', async (t) => {
  const cache = createKeyCache(4)
  for (const token of ['a', 'b', 'c']) cache.set(keyOf(cache, token))
  for (const token of ['a', 'b', 'c']) {
    cache.delete(cache.nameOf(token))
    t.equal(found(cache, token), undefined)
  }
  t.equal(cache.size(), 0)
  cache.delete(cache.nameOf('never there'))
})

t.test('a name holds nothing of its token and is valid in this cache only', async (t) => {
  const [cache, other] = [createKeyCache(10), createKeyCache(10)]
  const token = 'lk_0123456789abcdefghijklmnopqrstuvwxyz01'
  t.equal(cache.nameOf(token), cache.nameOf(token))
  t.not(cache.nameOf(token), other.nameOf(token))
  t.not(cache.nameOf(token), cache.nameOf(`${token} `))
  t.notOk(cache.nameOf(token).includes(token.slice(3, 9)))
})
