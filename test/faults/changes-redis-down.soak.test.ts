// While Redis is down nothing can announce a change to the other instances: its response waits
// until none of them can trust an older copy.
import t, { type Test } from 'tap'
import { startPrivateRedis } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import {
  changesOf,
  changesTo,
  deletion,
  figuresOf,
  lookAgain,
  makePeople,
  slowestMs,
  type Watched,
  watchChange,
  wrongWith,
} from './changes.ts'
import { deleteByCommandLine, everyCounterExpires, startFleet, untilShared } from './fleet.ts'

const cacheS = scaled(2, 5)
/** Beyond the wait itself: the statement in Postgres, requests under way, and a busy machine. */
const slackMs = 3000

const redis = await startPrivateRedis(t)
if (redis !== null) {
  const fleet = await startFleet(t, redis.url, { env: { KEY_CACHE_SECONDS: String(cacheS) } })
  const outages = [
    ['changes-redis-frozen', 'frozen', redis.freeze, redis.thaw],
    ['changes-redis-killed', 'killed, and back empty', redis.kill, redis.restart],
  ] as const

  async function changeWithout(
    t: Test,
    begin: () => Promise<void>,
    end: () => Promise<void>,
  ): Promise<Watched[]> {
    const people = await makePeople(fleet, scaled(12, 40))
    const [leaver] = await makePeople(fleet, 1)
    const left = deletion(fleet, leaver!.key, () => deleteByCommandLine(t, fleet, leaver!.userId))
    const changes = changesTo(fleet, people)
    const seenNow = async () =>
      wrongWith(await Promise.all([left, ...changes].map((one) => lookAgain(fleet, one))))

    await begin()
    const [deleted, ...changed] = await Promise.all([
      watchChange(fleet, 0, left, { forMs: 500 }),
      // Half of the keys are not used until then: an instance does not reread what it does not use.
      ...changes.map((change, i) => watchChange(fleet, i, change, { forMs: 500, busy: i % 2 === 0 })),
    ])
    t.same(
      wrongWith([deleted, ...changed]),
      {},
      'requests sent after the answer are decided by the new state',
    )
    const waitsMs = changed.map((one) => slowestMs([one]))
    t.ok(Math.min(...waitsMs) >= cacheS * 1000, `each response waited (${Math.min(...waitsMs)} ms)`)
    const latestMs = Math.max(...waitsMs)
    t.ok(latestMs < cacheS * 1000 + slackMs, `no longer than copies are trusted (${latestMs} ms)`)

    await end()
    t.same(await seenNow(), {}, 'also once Redis is back,')
    await untilShared(fleet.instances)
    t.same(await seenNow(), {}, 'and once all count in it again')
    const usable = people.filter((_, i) => i % 4 < 2)
    const more = await Promise.all(usable.map((one, i) => watchChange(fleet, i, changesOf(one).limit())))
    t.same(wrongWith(more), {}, 'the next change holds')
    t.ok(slowestMs(more) < 1500, `and is answered at once (${slowestMs(more)} ms)`)
    await everyCounterExpires(t, fleet.redis)
    // Without the deletion by command line, which takes mostly the start of a process.
    return changed
  }

  for (const [row, what, begin, end] of outages) {
    t.test(`with Redis ${what}, a change is answered late, and then it holds`, async (t) => {
      const watched: Watched[] = []
      for (let round = 0; round < scaled(1, 10); round++)
        watched.push(...(await changeWithout(t, begin, end)))
      recordFigure(t, row, figuresOf(watched))
    })
  }
}
