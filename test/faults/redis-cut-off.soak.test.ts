// One instance cut off from a Redis that the other goes on using.
import t from 'tap'
import { chanceOf } from './chance.ts'
import { blackHoled } from './redis-faults.ts'
import { startFleet } from './redis-fleet.ts'
import { repeatedly } from './redis-repeatedly.ts'

const chance = chanceOf(t)
const fleet = await startFleet(t, { networks: 1 })

if (fleet !== null) {
  t.test('one instance cut off from Redis counts by itself, and the other notices nothing', (t) =>
    repeatedly(t, fleet, blackHoled(0), chance, 'redis-black-hole-one'),
  )
}
