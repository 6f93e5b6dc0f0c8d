// A key is revoked or its limit changed on one instance while Redis fails: the other goes by it
// from the moment of the answer, which may be late, and is true.
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { answeredMs, stepsBack, tally, wrongAnswers } from './answers.ts'
import { chanceOf } from './chance.ts'
import {
  changesOf,
  figuresOf,
  makePerson,
  slowestMs,
  type Watched,
  watchChange,
  wrongWith,
} from './changes.ts'
import { plenty, untilShared, verify } from './fleet.ts'
import {
  blackHoled,
  type Fault,
  frozen,
  killed,
  outOfMemory,
  type RedisFleet,
  restarted,
  startRedisFleet,
} from './redis-faults.ts'

/**
 * A short run takes the fault that loses all, and the one where the other instance goes on trusting
 * a Redis that heard nothing.
 */
const briefly: [string, Fault][] = [
  ['Redis killed', killed],
  ['the instance that makes the change cut off', blackHoled(0)],
]
const fully: [string, Fault][] = [
  ...briefly,
  ['Redis restarted at once', restarted],
  ['Redis frozen', frozen],
  ['Redis out of memory', outOfMemory],
  ['the other instance cut off', blackHoled(1)],
  ['both cut off', blackHoled(0, 1)],
]
/** The limit before and after the change; null: revoked. */
const kinds = [
  { name: 'revoked', limit: plenty, newLimit: null },
  { name: 'lowered', limit: plenty, newLimit: 7 },
  { name: 'raised', limit: 3, newLimit: plenty },
] as const
const cacheS = scaled(1, 5)
/**
 * What a change takes beyond KEY_CACHE_SECONDS at most: the margin of 4 % and 0.25 s, its
 * statements in Postgres, a busy machine.
 */
const slackMs = 2000
/** Changes begin from this long before the fault. */
const leadMs = 60

const chance = chanceOf(t)
const fleet = await startRedisFleet(t, { networks: scaled(1, 2), env: { KEY_CACHE_SECONDS: String(cacheS) } })

const watched: Watched[] = []
const wrong: string[] = []

async function round(t: Test, fleet: RedisFleet, fault: Fault) {
  const people = await Promise.all(kinds.map(({ limit }) => makePerson(fleet, { rateLimitRpm: limit })))
  // Every instance has each key in its cache, and the low limit is used up.
  for (const url of [...fleet.urls, ...fleet.urls])
    await Promise.all(people.map(({ key }) => verify(url, key.token)))
  const during = endure(fleet, fault)
  const changed = await Promise.all(
    people.map((person, i) => {
      const { limit, revocation } = changesOf(person)
      const { newLimit } = kinds[i]!
      const start = () => chance.pause(0, leadMs + 500)
      const watch = { start, busy: true, everyMs: scaled(100, 15), forMs: 300, during }
      return watchChange(fleet, 0, newLimit === null ? revocation() : limit(newLimit), watch)
    }),
  )
  const wrongNow = changed.flatMap((one, i) => wrongIn(one, kinds[i]!))
  t.strictSame({ ...wrongWith(changed), ...tally(wrongNow) }, {}, 'no answer is wrong, too late or too early')
  t.ok(
    changed.every(({ asked }) => asked >= 2),
    'every instance was asked after each answer',
  )
  watched.push(...changed)
  wrong.push(...wrongNow)
}

/**
 * Resolves a moment after all count in Redis again: what has been answered holds with Redis there,
 * too.
 */
async function endure(fleet: RedisFleet, fault: Fault) {
  await pause(leadMs)
  await fault.begin(fleet)
  // Sometimes before the answers, which then need not wait any longer, and sometimes after them.
  await chance.pause(100, cacheS * 1000 + 700)
  await fault.end?.(fleet)
  await untilShared(fleet.instances)
  await pause(300)
}

function wrongIn(
  { answers, sentMs, unavailable }: Watched,
  { name, limit, newLimit }: (typeof kinds)[number],
): string[] {
  const unchanged = answers.filter(({ old }) => old)
  const changed = answers.filter(({ old }) => !old)
  const early = changed.filter((answer) => answeredMs(answer) < sentMs)
  return [
    ...wrongAnswers(unchanged, limit),
    ...stepsBack(unchanged, limit),
    ...(newLimit === null ? [] : [...wrongAnswers(changed, newLimit), ...stepsBack(changed, newLimit)]),
    ...early.map(() => `${name} before it was asked for`),
    ...Array.from({ length: unavailable }, () => 'answered 503'),
  ]
}

if (fleet !== null) {
  for (const [name, fault] of soaking ? fully : briefly) {
    t.test(`${name}: a change holds on both instances from its answer on`, async (t) => {
      for (let n = 0; n < scaled(1, 20); n++) await round(t, fleet, fault)
      // Not in a short run, where the machine has other work, too.
      if (soaking)
        t.ok(slowestMs(watched) <= cacheS * 1000 + slackMs, `answered after ${slowestMs(watched)} ms`)
    })
  }

  t.test('the figures of all changes are recorded', async (t) => {
    const { changes, requests, old, slowestS } = figuresOf(watched)
    t.ok(changes > 0)
    recordFigure(t, 'redis-changes', { changes, requests, wrong: wrong.length + old, slowestS })
  })
}
