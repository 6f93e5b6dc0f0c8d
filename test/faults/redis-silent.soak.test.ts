// Redis silent: connections stay open and nothing comes back.
import t from 'tap'
import { chanceOf } from './chance.ts'
import { blackHoled, frozen } from './redis-faults.ts'
import { startFleet } from './redis-fleet.ts'
import { repeatedly } from './redis-repeatedly.ts'

const chance = chanceOf(t)

t.test('Redis frozen under load: nobody waits for it longer than a moment', async (t) => {
  const fleet = await startFleet(t)
  if (fleet !== null) await repeatedly(t, fleet, frozen, chance, 'redis-frozen')
})

t.test(
  'the network to Redis swallows everything under load: the same, also for new connections',
  async (t) => {
    const fleet = await startFleet(t, { networks: 2 })
    if (fleet !== null) await repeatedly(t, fleet, blackHoled(0, 1), chance, 'redis-black-hole')
  },
)
