// While Redis is away nothing can tell the other instances of a change: its answer waits until none of them can believe an older
// copy, and what is sent after the answer is decided by the new state.
import t, { type Test } from 'tap'
import { startPrivateRedis } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { everyCounterExpires } from './expiring-counters.ts'
import { changesOf, deletion, makePeople, warm } from './key-changes.ts'
import { deleteByCommandLine, type ThreeInstances, threeProcesses } from './three-instances.ts'
import { faultsOf, lookAgain, numbersOf, slowestMs, type Watched, watchChange } from './watched-change.ts'

const cacheS = scaled(2, 5)
/** Beyond the waiting itself: the statement in Postgres, requests under way, and a busy machine. */
const slackMs = 3000
const atOnce = scaled(12, 40)
const rounds = scaled(1, 10)

const redis = await startPrivateRedis(t)
if (redis !== null) {
  const three = await threeProcesses(t, redis, { env: { KEY_CACHE_SECONDS: String(cacheS) } })
  const frozen: Watched[] = []
  const killed: Watched[] = []
  for (let round = 1; round <= rounds; round++) {
    await t.test(`with Redis frozen a change answers late, and then it holds (${round})`, async (t) => {
      frozen.push(...(await changeWithout(t, three, redis.freeze, redis.thaw)))
    })
    await t.test(`with Redis killed it does too, also when an empty one is back (${round})`, async (t) => {
      killed.push(...(await changeWithout(t, three, redis.kill, redis.restart)))
    })
  }
  recordFigure(t, 'changes-redis-frozen', numbersOf(frozen))
  recordFigure(t, 'changes-redis-killed', numbersOf(killed))
}

async function changeWithout(
  t: Test,
  three: ThreeInstances,
  takeAway: () => Promise<void>,
  giveBack: () => Promise<void>,
): Promise<Watched[]> {
  const people = await Promise.all(Array.from({ length: atOnce + 1 }, () => makePeople(three.operator)))
  for (const { key } of people) await warm(three, key.token)
  const leaving = people.shift()!
  const left = deletion(leaving.key.token, () => deleteByCommandLine(t, three, leaving.userId))
  const changes = people.map((one, i) => {
    const { limit, expiry, revocation } = changesOf(one)
    return [limit, expiry, revocation][i % 3]!()
  })
  const seenNow = async () => Promise.all([left, ...changes].map((change) => lookAgain(three, change)))

  await takeAway()
  const [deleted, ...changed] = await Promise.all([
    watchChange(three, 0, left, { forMs: 500 }),
    // Half of the keys are not used until then: what an instance does not use it does not read again.
    ...changes.map((change, i) => watchChange(three, i, change, { forMs: 500, busy: i % 2 === 0 })),
  ])
  t.same(faultsOf([deleted, ...changed]), [], 'what is sent after the answer is decided by the new state')
  const soonestMs = Math.min(...changed.map(({ tookMs }) => tookMs))
  t.ok(soonestMs >= cacheS * 1000, `each answer waited (${soonestMs} ms)`)
  const latestMs = slowestMs(changed)
  t.ok(latestMs < cacheS * 1000 + slackMs, `no longer than copies are believed (${latestMs} ms)`)

  await giveBack()
  t.same(faultsOf(await seenNow()), [], 'so it is when Redis is back,')
  await three.untilShared()
  t.same(faultsOf(await seenNow()), [], 'and when all count in it again')
  const usable = people.filter((_, i) => i % 3 < 2)
  const more = await Promise.all(usable.map((one, i) => watchChange(three, i, changesOf(one).limit())))
  t.same(faultsOf(more), [], 'the next change holds,')
  t.ok(slowestMs(more) < 1500, `and is answered at once (${slowestMs(more)} ms)`)
  await everyCounterExpires(t, three.redis)
  // The deletion is asserted as well; how long it takes is mostly the start of the command line.
  return changed
}
