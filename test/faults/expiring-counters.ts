// What Latchkey writes to Redis goes away by itself: a counter that stayed would be one more for every key and minute, for ever.
import type { Redis } from 'ioredis'
import type { Test } from 'tap'

/** Kept at most so long: counters 2 minutes, versions 10 minutes. */
const keptAtMostS = (name: string) => (name.endsWith(':v') ? 600 : 120)

/** Looks at every key there is. Asked while there are some, or it proves nothing. */
export async function everyCounterExpires(t: Test, redis: Redis): Promise<void> {
  const names: string[] = []
  for await (const some of redis.scanStream({ match: 'rl:*', count: 1000 })) names.push(...some)
  const wrong: string[] = []
  for (const name of new Set(names)) {
    const ttlS = await redis.ttl(name)
    // -2: it went while we looked.
    if (ttlS !== -2 && (ttlS < 0 || ttlS > keptAtMostS(name))) wrong.push(`${name} is kept for ${ttlS} s`)
  }
  t.ok(names.length > 0, 'there are counters')
  t.same(wrong, [], `each of ${names.length} keys in Redis expires`)
}
