// A Redis that forgets what it had confirmed: a change is lost there before the other instances
// have heard of it, and their next request must notice.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { startPrivateRedis } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { chanceOf } from './chance.ts'
import { changesTo, figuresOf, makePeople, type Watched, watchChange, wrongWith } from './changes.ts'
import { everyCounterExpires, startFleet, untilShared } from './fleet.ts'

const atOnce = scaled(8, 40)

const redis = await startPrivateRedis(t)
if (redis !== null) {
  const chance = chanceOf(t)
  const fleet = await startFleet(t, redis.url)
  const changes = async (count: number) => changesTo(fleet, await makePeople(fleet, count))

  t.test('a change made before FLUSHALL holds from its answer on', async (t) => {
    const watched: Watched[] = []
    for (let round = 0; round < scaled(1, 20); round++) {
      const answered = barrier(atOnce * fleet.urls.length)
      const forgotten = answered.all.then(() => fleet.redis.flushall())
      const watches = (await changes(atOnce)).map((change, i) => {
        // Each instance then hears of its key for the first time, before its copy is too old.
        const restMs = chance.between(0, scaled(500, 4500))
        const rest = async () => {
          answered.arrive()
          await forgotten
          await pause(restMs)
        }
        return watchChange(fleet, i, change, { rest, forMs: 1000 })
      })
      watched.push(...(await Promise.all(watches)))
    }
    t.same(wrongWith(watched), {})
    await everyCounterExpires(t, fleet.redis)
    recordFigure(t, 'changes-flushall', figuresOf(watched))
  })

  t.test('a change made before or while Redis restarts empty holds from its answer on', async (t) => {
    const watched: Watched[] = []
    for (let round = 0; round < scaled(1, 40); round++) {
      const [early, others] = [await changes(atOnce / 2), await changes(scaled(4, 40))]
      // Only Redis knows of the early ones: no instance is asked for them before it has forgotten
      // them.
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
