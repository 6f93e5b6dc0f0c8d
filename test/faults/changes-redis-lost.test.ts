// A Redis that forgets what it had confirmed: the news of a change is gone before the other instances have heard of it. How long
// do they act on the old state?
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { until } from '../process/until.ts'
import { startPrivateRedis } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { chanceOf } from './chance.ts'
import { everyCounterExpires } from './expiring-counters.ts'
import { type Change, changesOf, deletion, makePeople, removeUser, warm } from './key-changes.ts'
import { type ThreeInstances, threeProcesses } from './three-instances.ts'
import { faultsOf, numbersOf, type Watched, watchChange } from './watched-change.ts'

/** After this every copy is read again, whatever Redis says. */
const cacheS = scaled(2, 5)
const rounds = scaled(1, 20)
const atOnce = scaled(8, 40)

const redis = await startPrivateRedis(t)
if (redis !== null) {
  const chance = chanceOf(t)
  const three = await threeProcesses(t, redis, { env: { KEY_CACHE_SECONDS: String(cacheS) } })

  t.test('after FLUSHALL no instance acts on an old state for longer than copies are believed', async (t) => {
    const watched: Watched[] = []
    for (let round = 0; round < rounds; round++) {
      const changes = await cachedKeys(three)
      let answered = 0
      let flushed = () => {}
      const forgotten = new Promise<void>((resolve) => {
        flushed = resolve
      })
      const watches = changes.map((change, i) => {
        // From at once to just before the copies are too old, each instance then hears of its key for the first time.
        const restMs = chance.between(0, cacheS * 1000)
        const rest = async () => {
          if (++answered === changes.length * three.urls.length) await three.redis.flushall().then(flushed)
          await forgotten
          await pause(restMs)
        }
        return watchChange(three, i, change, { rest, forMs: cacheS * 1000 + 1000 })
      })
      watched.push(...(await Promise.all(watches)))
    }
    t.same(faultsOf(watched, cacheS * 1000), [])
    await everyCounterExpires(t, three.redis)
    const late = watched.flatMap(({ lateMs }) => lateMs ?? [])
    const longestS = Math.max(0, ...late) / 1000
    recordFigure(t, 'changes-flushall', { changes: watched.length, late: late.length, longestS })
  })

  t.test(
    'a change made before or while Redis restarts, and loses all, holds from its answer on',
    async (t) => {
      const watched: Watched[] = []
      for (let round = 0; round < scaled(1, 40); round++) {
        const [told, ...others] = await Promise.all([cachedKeys(three), cachedKeys(three)])
        let restarted = () => {}
        const back = new Promise<void>((resolve) => {
          restarted = resolve
        })
        // Only Redis knows of these: no instance is asked before it has lost them.
        let answered = 0
        const rest = () => {
          answered++
          return back
        }
        const before = told.map((change, i) => watchChange(three, i, change, { rest, forMs: 1500 }))
        await until('they are answered', () => answered === told.length * three.urls.length)
        const during = others.flat().map(async (change, i) => {
          await pause(chance.between(0, 300))
          const restMs = i % 2 === 0 ? 0 : chance.between(0, 1500)
          const rest = () => pause(restMs)
          return watchChange(three, i, change, {
            rest,
            everyMs: scaled(200, 50),
            forMs: 1500,
            busy: i % 3 === 0,
          })
        })
        await pause(chance.between(0, 100))
        await redis.kill()
        await redis.restart()
        await three.untilShared()
        restarted()
        watched.push(...(await Promise.all([...before, ...during])))
      }
      t.same(faultsOf(watched), [])
      await everyCounterExpires(t, three.redis)
      recordFigure(t, 'changes-redis-restart', numbersOf(watched))
    },
  )
}

/** Changes to as many keys, which all instances have just read. */
async function cachedKeys(three: ThreeInstances): Promise<Change[]> {
  const people = await Promise.all(Array.from({ length: atOnce }, () => makePeople(three.operator)))
  await Promise.all(people.map(({ key }) => warm(three, key.token)))
  return people.map((one, i) => {
    const { limit, expiry, revocation } = changesOf(one)
    const leave = () => deletion(one.key.token, () => removeUser(three.operator, one.userId))
    return [limit, expiry, revocation, leave][i % 4]!()
  })
}
