// Redis gone: killed and away for a while, or restarted at once; empty when it comes back.
import t from 'tap'
import { chanceOf } from './chance.ts'
import { killed, restarted } from './redis-faults.ts'
import { startFleet } from './redis-fleet.ts'
import { repeatedly } from './redis-repeatedly.ts'

const chance = chanceOf(t)
const fleet = await startFleet(t)

if (fleet !== null) {
  t.test(
    'Redis killed under load: every request is decided from the last count seen, and a new Redis counts by itself',
    (t) => repeatedly(t, fleet, killed, chance, 'redis-killed'),
  )

  t.test('Redis restarted at once and empty: no instance begins anew what it has counted', (t) =>
    repeatedly(t, fleet, restarted, chance, 'redis-restarted'),
  )
}
