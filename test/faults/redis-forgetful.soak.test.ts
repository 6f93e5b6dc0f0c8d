// Redis answers and does not do what it is there for: no memory left, scripts forgotten, everything forgotten.
import t from 'tap'
import { chanceOf } from './chance.ts'
import { allForgotten, outOfMemory, scriptsForgotten } from './redis-faults.ts'
import { startFleet } from './redis-fleet.ts'
import { repeatedly } from './redis-repeatedly.ts'

const chance = chanceOf(t)
const fleet = await startFleet(t)

if (fleet !== null) {
  t.test('Redis out of memory under load is handled like one that is away', (t) =>
    repeatedly(t, fleet, outOfMemory, chance, 'redis-out-of-memory'),
  )

  t.test('scripts flushed under load: every request is counted in Redis, and once', (t) =>
    repeatedly(t, fleet, scriptsForgotten, chance, 'redis-script-flush'),
  )

  t.test('everything flushed under load: no instance begins anew what it has counted', (t) =>
    repeatedly(t, fleet, allForgotten, chance, 'redis-flushall'),
  )
}
