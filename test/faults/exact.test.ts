// Exact: in one minute a key admits its limit and not one request more, whatever the instances, the
// concurrency and the moment.
import t from 'tap'
import { recordFigure, soaking } from '../soak.ts'
import { expectExact, type Flood } from './exactness.ts'
import { everyCounterExpires, startAnyFleet } from './fleet.ts'

const briefly: Flood[] = [
  { limit: 1, requests: 40, atOnce: 40 },
  { limit: 7, requests: 60, atOnce: 10 },
  { limit: 100, requests: 300, atOnce: 150 },
  { limit: 600, requests: 700, atOnce: 50 },
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

t.test('instances together admit each key its limit a minute and count every request once', async (t) => {
  const fleet = await startAnyFleet(t)
  const floods = soaking ? fully : briefly
  const { keys, ...counted } = await expectExact(t, fleet, { floods, wholeMinutes: 4, turnWithinMs: 5000 })
  await everyCounterExpires(t, fleet.redis)
  recordFigure(t, 'exact', { ...counted, keys: keys.length })
})
