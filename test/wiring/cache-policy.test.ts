// How long a cached key is trusted in each setting, and how long a change waits when Redis does not
// confirm it.
import t from 'tap'
import { cachePolicy } from '../../src/wiring/cache-policy.ts'

const settings = [
  ['servers of its own, counting in memory', { embedded: true, inMemory: true }, 5, [5000, 1000, 1000]],
  ['the same with a shorter cache', { embedded: true, inMemory: true }, 0, [0, 0, 1000]],
  ['an embedded Postgres and a Redis', { embedded: true, inMemory: false }, 5, [5000, 0, 5000]],
  ['a given Postgres without Redis', { embedded: false, inMemory: true }, 5, [5000, 0, 5000]],
  ['a given Postgres and a Redis', { embedded: false, inMemory: false }, 60, [60_000, 0, 60_000]],
] as const

for (const [what, setting, seconds, [cacheTtlMs, degradedCacheTtlMs, maxStaleMs]] of settings) {
  t.test(what, async (t) => {
    t.strictSame(cachePolicy({ keyCacheSeconds: seconds, outageCacheSeconds: 60 }, setting), {
      ...{ cacheTtlMs, degradedCacheTtlMs, maxStaleMs },
      outageTtlMs: 60_000,
    })
  })
}

t.test('a change waits at least as long as any copy is trusted without confirmation', async (t) => {
  for (const seconds of [0, 1, 5, 60])
    for (const [what, setting] of settings) {
      const { degradedCacheTtlMs, maxStaleMs } = cachePolicy(
        { keyCacheSeconds: seconds, outageCacheSeconds: 60 },
        setting,
      )
      t.ok(degradedCacheTtlMs <= maxStaleMs, `${what}, ${seconds} s`)
    }
})
