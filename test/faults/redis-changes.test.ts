// A key revoked or its limit changed on one instance while Redis fails: the other goes by it from the moment of the answer,
// which may be late, and is true.
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { chanceOf } from './chance.ts'
import { tally } from './redis-answers.ts'
import { type Change, kinds, prepareChange } from './redis-change.ts'
import { blackHoled, type Fault, frozen, killed, outOfMemory, restarted } from './redis-faults.ts'
import { startFleet, untilDegraded } from './redis-fleet.ts'

/** In CI the one that loses all, and the one where the other instance goes on trusting a Redis that was told nothing. */
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
const faults = soaking ? fully : briefly
const rounds = scaled(2, 20)
const cacheS = scaled(1, 5)
/** What a change takes beyond KEY_CACHE_SECONDS at most: the margin of 0.25 s, its statements in Postgres, a busy machine. */
const slackMs = 2000
/** Changes begin from this long before the fault. */
const leadMs = 60

const chance = chanceOf(t)
const fleet = await startFleet(t, { networks: scaled(1, 2), env: { KEY_CACHE_SECONDS: String(cacheS) } })
const changes: Change[] = []

async function round(t: Test, fault: Fault) {
  const { instances } = fleet!
  const prepared = await Promise.all(kinds.map((kind) => prepareChange(t, fleet!, kind)))
  // Long enough that every instance has each key in its cache, and the low limit is used up.
  await pause(300)
  const made = Promise.all(prepared.map(({ make }) => make(chance.between(0, leadMs + 500))))
  await pause(leadMs)
  await fault.strike(fleet!)
  // Sometimes before the answers, which then need not wait any longer, and sometimes after them.
  await chance.pause(100, cacheS * 1000 + 700)
  await fault.heal?.(fleet!)
  await made
  await Promise.all(instances.map((instance) => untilDegraded(instance, 0)))
  // What has been answered holds with Redis there, too.
  await pause(300)
  return Promise.all(prepared.map(({ judge }) => judge()))
}

if (fleet !== null) {
  for (const [name, fault] of faults) {
    t.test(`${name}: a change holds on both instances from its answer on`, async (t) => {
      for (let n = 1; n <= rounds; n++) {
        const made = await round(t, fault)
        changes.push(...made)
        t.strictSame(
          tally(made.flatMap(({ faults }) => faults)),
          [],
          `round ${n}: nothing too late or too early`,
        )
        t.ok(
          made.every(({ after }) => after.every((requests) => requests > 0)),
          'every instance was asked after each answer',
        )
        const slowestMs = Math.round(Math.max(...made.map(({ tookMs }) => tookMs)))
        // Only at full length: in CI the machine does more than this.
        if (soaking)
          t.ok(slowestMs <= cacheS * 1000 + slackMs, `the slowest answer came after ${slowestMs} ms`)
      }
    })
  }

  t.test('the figures of all', async (t) => {
    const asked = changes.flatMap(({ after }) => after).reduce((sum, requests) => sum + requests, 0)
    const wrong = changes.flatMap(({ faults }) => faults).length
    const slowestS = Math.max(...changes.map(({ tookMs }) => tookMs)) / 1000
    t.ok(changes.length > 0)
    recordFigure(t, 'redis-changes', { changes: changes.length, requests: asked, wrong, slowestS })
  })
}
