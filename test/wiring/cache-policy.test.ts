// How long a cached key is trusted in each setting, and how long a change waits when Redis does not
// confirm it.
import t from 'tap'
import { cachePolicy } from '../../src/wiring/cache-policy.ts'

const settings = [
  ['servers of its own, counting in memory', { embedded: true, inMemory: true }, 5, [1000, 1000, 1000, 0]],
  ['the same with a shorter cache', { embedded: true, inMemory: true }, 0, [0, 0, 1000, 0]],
  ['an embedded Postgres and a Redis', { embedded: true, inMemory: false }, 5, [1000, 0, 1000, 0]],
  ['the same with a shorter cache', { embedded: true, inMemory: false }, 0, [0, 0, 1000, 0]],
  ['a given Postgres without Redis', { embedded: false, inMemory: true }, 5, [5000, 0, 5000, 40_000]],
  ['a given Postgres and a Redis', { embedded: false, inMemory: false }, 60, [60_000, 0, 60_000, 40_000]],
] as const

for (const [what, setting, seconds, [cacheTtlMs, degradedCacheTtlMs, maxStaleMs, outageTtlMs]] of settings) {
  t.test(what, async (t) => {
    t.strictSame(cachePolicy({ keyCacheSeconds: seconds, outageCacheSeconds: 40 }, setting), {
      ...{ cacheTtlMs, degradedCacheTtlMs, maxStaleMs, outageTtlMs },
    })
  })
}

t.test('a change waits at least as long as any copy is trusted', async (t) => {
  for (const seconds of [0, 1, 5, 60])
    for (const [what, setting] of settings) {
      const { cacheTtlMs, degradedCacheTtlMs, maxStaleMs } = cachePolicy(
        { keyCacheSeconds: seconds, outageCacheSeconds: 60 },
        setting,
      )
      t.ok(Math.max(cacheTtlMs, degradedCacheTtlMs) <= maxStaleMs, `${what}, ${seconds} s`)
    }
})
