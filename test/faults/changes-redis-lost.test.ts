// A Redis that forgets what it had confirmed: a change is lost there before the other instances have heard of it. How long do they
// act on the old state?
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { startPrivateRedis } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { chanceOf } from './chance.ts'
import {
  changesTo,
  figuresOf,
  lateMsOf,
  makePeople,
  type Watched,
  watchChange,
  wrongWith,
} from './changes.ts'
import { everyCounterExpires, startFleet, untilShared } from './fleet.ts'

/** After this every copy is read again, whatever Redis says. */
const cacheS = scaled(1, 5)
const atOnce = scaled(8, 40)

const redis = await startPrivateRedis(t)
if (redis !== null) {
  const chance = chanceOf(t)
  const fleet = await startFleet(t, redis.url, { env: { KEY_CACHE_SECONDS: String(cacheS) } })
  const changes = async (count: number) => changesTo(fleet, await makePeople(fleet, count))

  t.test('after FLUSHALL no instance acts on an old state for longer than a copy is trusted', async (t) => {
    const watched: Watched[] = []
    for (let round = 0; round < scaled(1, 20); round++) {
      const answered = barrier(atOnce * fleet.urls.length)
      const forgotten = answered.all.then(() => fleet.redis.flushall())
      const watches = (await changes(atOnce)).map((change, i) => {
        // From at once to just before the copies expire, each instance then hears of its key for the first time.
        const restMs = chance.between(0, cacheS * 1000)
        const rest = async () => {
          answered.arrive()
          await forgotten
          await pause(restMs)
        }
        return watchChange(fleet, i, change, { rest, forMs: cacheS * 1000 + 500 })
      })
      watched.push(...(await Promise.all(watches)))
    }
    t.same(wrongWith(watched, cacheS * 1000), {})
    await everyCounterExpires(t, fleet.redis)
    const late = lateMsOf(watched)
    const longestS = Math.max(0, ...late) / 1000
    recordFigure(t, 'changes-flushall', { changes: watched.length, late: late.length, longestS })
  })

  t.test('a change made before or while Redis restarts empty holds from its answer on', async (t) => {
    const watched: Watched[] = []
    for (let round = 0; round < scaled(1, 40); round++) {
      const [early, others] = [await changes(atOnce / 2), await changes(scaled(4, 40))]
      // Only Redis knows of the early ones: no instance is asked for them before it has forgotten them.
      const answered = barrier(early.length * fleet.urls.length)
      const restarted = answered.all.then(async () => {
        await chance.pause(0, 100)
        await redis.kill()
        await redis.restart()
        await untilShared(fleet.instances)
      })
      const rest = () => {
        answered.arrive()
        return restarted
      }
      const before = early.map((change, i) => watchChange(fleet, i, change, { rest, forMs: 500 }))
      await answered.all
      const during = others.map(async (change, i) => {
        const restMs = i % 2 === 0 ? 0 : chance.between(0, scaled(500, 1500))
        const rest = () => pause(restMs)
        await chance.pause(0, 300)
        return watchChange(fleet, i, change, {
          rest,
          everyMs: scaled(100, 50),
          forMs: 1500,
          busy: i % 3 === 0,
        })
      })
      watched.push(...(await Promise.all([...before, ...during])))
    }
    t.same(wrongWith(watched), {})
    await everyCounterExpires(t, fleet.redis)
    recordFigure(t, 'changes-redis-restart', figuresOf(watched))
  })
}

/** `all` resolves once `arrive` was called `count` times. */
function barrier(count: number): { arrive(): void; all: Promise<void> } {
  let arrive = () => {}
  const all = new Promise<void>((resolve) => {
    arrive = () => {
      if (--count === 0) resolve()
    }
  })
  return { arrive: () => arrive(), all }
}
