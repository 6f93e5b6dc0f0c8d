// Exact: in one minute a key admits its limit and not one request more, whatever the instances, the concurrency and the moment.
import t from 'tap'
import { recordFigure, soaking } from '../soak.ts'
import { expectExact } from './exactness.ts'
import { everyCounterExpires } from './expiring-counters.ts'
import type { Flood } from './flood.ts'
import { threeInstances } from './three-instances.ts'

const briefly: Flood[] = [
  { limit: 1, requests: 60, atOnce: 60 },
  { limit: 7, requests: 100, atOnce: 10 },
  { limit: 100, requests: 400, atOnce: 200 },
  { limit: 3000, requests: 3300, atOnce: 200 },
]
const fully: Flood[] = [
  { limit: 1, requests: 200, atOnce: 200 },
  { limit: 2, requests: 50, atOnce: 10 },
  { limit: 10, requests: 200, atOnce: 100 },
  { limit: 100, requests: 400, atOnce: 200 },
  { limit: 1000, requests: 1200, atOnce: 200 },
  { limit: 5000, requests: 5500, atOnce: 100 },
  { limit: 10_000, requests: 11_000, atOnce: 200 },
]

t.test(
  'three instances together admit each key its limit a minute, tell each number left once and count every request',
  async (t) => {
    const three = await threeInstances(t)
    const floods = soaking ? fully : briefly
    const counted = await expectExact(t, three, {
      floods,
      wholeMinutes: 4,
      turnWithinMs: 10_000,
    })
    await everyCounterExpires(t, three.redis)
    recordFigure(t, 'exact', { keys: floods.length, ...counted })
  },
)
