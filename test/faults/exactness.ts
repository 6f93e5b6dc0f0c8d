// Floods several keys at once and says whether every window of every key came out exact. With whatever instances are given.
import type { Test } from 'tap'
import { scaled, soaking } from '../soak.ts'
import { type Flood, type Flooded, flood } from './flood.ts'
import type { ThreeInstances } from './three-instances.ts'
import { windowEndS } from './window-tally.ts'

export interface ExactnessOptions {
  floods: Flood[]
  /** Whole minutes at full length. */
  wholeMinutes: number
  /** Briefly: how long a turn of the minute may be waited for; if it is further away the test stays within one. */
  turnWithinMs: number
}

const afterTurnMs = 1000
const attemptsMax = scaled(20, 3)

/** When to end, by the wall clock. */
function endMs({ wholeMinutes, turnWithinMs }: ExactnessOptions): number {
  const nowMs = Date.now()
  const turnMs = windowEndS(nowMs) * 1000
  const briefly = turnMs - nowMs <= turnWithinMs ? turnMs + afterTurnMs : nowMs
  return scaled(briefly, turnMs + wholeMinutes * 60_000 + afterTurnMs)
}

/**
 * On a machine so busy that Redis is silent for 100 ms an instance counts by itself, and may: that is another promise. Asked again
 * then, with fresh keys.
 */
async function undisturbed(t: Test, three: ThreeInstances, work: () => Promise<Flooded[]>) {
  for (let attempt = 1; ; attempt++) {
    const before = three.timesAway()
    const flooded = await work()
    const away = three.timesAway() - before
    if (away === 0 || attempt === attemptsMax) return { flooded, away }
    t.comment(`Redis was out of sight ${away} times: once more`)
    await three.untilShared()
  }
}

export async function expectExact(t: Test, three: ThreeInstances, options: ExactnessOptions) {
  const { flooded, away } = await undisturbed(t, three, () => {
    const untilMs = endMs(options)
    return Promise.all(options.floods.map((one) => flood(three, one, untilMs)))
  })
  let windowsInAll = 0
  let requests = 0
  /** Answers that were wrong in themselves, by kind, and minutes of a key that did not come out exact. */
  let off = 0
  for (const { limit, windows, faults } of flooded) {
    t.same(faults, [], `limit ${limit}: each answer is right in itself`)
    off += faults.length
    for (const { resetS, answers, fault } of windows) {
      t.equal(fault, null, `limit ${limit}: ${answers.length} requests in the minute until ${resetS}`)
      requests += answers.length
      if (fault !== null) off++
    }
    const exceeded = windows.filter(({ answers }) => answers.length > limit).length
    t.ok(exceeded >= scaled(1, Math.floor(options.wholeMinutes / 2)), `limit ${limit}: it was reached`)
    windowsInAll += windows.length
  }
  const crossing = flooded.reduce((sum, one) => sum + one.crossing, 0)
  t.equal(away, 0, 'all counted in Redis, all the time')
  if (soaking) t.ok(crossing > 0, 'requests were under way when the minute turned')
  return { minutes: windowsInAll, requests, crossing, off }
}
