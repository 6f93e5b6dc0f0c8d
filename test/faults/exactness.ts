// Floods several keys at once and says whether each minute of each key came out exact.
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { scaled, soaking } from '../soak.ts'
import { type Counted, countedOf, countFault, tally, wrongAnswers } from './answers.ts'
import { type Fleet, type FleetKey, isSlow, makeKeys, outages, undisturbed, verify } from './fleet.ts'

export interface Flood {
  limit: number
  /** Sent in a minute, as fast as possible. */
  requests: number
  atOnce: number
}

export interface Flooded {
  key: FleetKey
  /** Of single answers and of minutes. */
  faults: string[]
  minutes: number
  /** Minutes with more requests than the limit. */
  exceeded: number
  requests: number
  /** Requests that were under way when a minute turned. */
  crossing: number
}

/** When the minute of this moment ends, Unix seconds. */
export const minuteEndS = (ms: number) => (Math.floor(ms / 60_000) + 1) * 60

/** Before a minute turns nothing pauses, so that requests are under way when it does. */
const beforeTurnMs = 1000
const afterTurnMs = 1000

/**
 * Until `untilMs` of the wall clock, which is Redis's too, and until more was sent in some minute
 * than the limit.
 */
async function flood(fleet: Fleet, { limit, requests, atOnce }: Flood, untilMs: number): Promise<Flooded> {
  const key = (await makeKeys(fleet, 1, { rateLimitRpm: limit }))[0]!
  const flooded: Flooded = { key, faults: [], minutes: 0, exceeded: 0, requests: 0, crossing: 0 }
  const open = new Map<number, Counted[]>()

  async function one() {
    const url = fleet.urls[flooded.requests++ % fleet.urls.length]!
    const sentMs = Date.now()
    const answer = countedOf(await verify(url, key.token))
    const doneMs = Date.now()
    const wrong = [...wrongAnswers([answer], limit), ...wrongTimes(answer, sentMs, doneMs)]
    if (wrong.length > 0) return flooded.faults.push(...wrong)
    if (minuteEndS(sentMs) < minuteEndS(doneMs)) flooded.crossing++
    if (!open.has(answer.resetS)) open.set(answer.resetS, [])
    open.get(answer.resetS)!.push(answer)
  }
  /** Redis forgets a count soon after its minute. */
  async function close(resetS: number) {
    const answers = open.get(resetS)!
    open.delete(resetS)
    const fault = countFault(answers, limit, await fleet.countIn(key.id, resetS))
    if (fault !== null) flooded.faults.push(fault)
    if (answers.length > limit) flooded.exceeded++
    flooded.minutes++
  }

  for (;;) {
    await Promise.all(Array.from({ length: atOnce }, one))
    if (flooded.faults.length > 0) break
    // No request with this key is under way, so all minutes but the newest are complete.
    const newest = Math.max(...open.keys())
    for (const resetS of [...open.keys()]) if (resetS < newest) await close(resetS)
    const nowMs = Date.now()
    const sent = open.get(newest)?.length ?? 0
    const isOver = nowMs >= untilMs
    if (isOver && flooded.requests >= requests && (flooded.exceeded > 0 || sent > limit)) break
    const turnMs = minuteEndS(nowMs) * 1000
    // In the soak every second minute leaves some of the limit, so that there are admissions on
    // both sides of a turn.
    const share = soaking && (turnMs / 60_000) % 2 === 1 ? 0.5 : 1
    if (!isOver && sent >= requests * share)
      await pause(Math.max(0, Math.min(turnMs - beforeTurnMs, untilMs) - nowMs))
  }
  for (const resetS of [...open.keys()]) await close(resetS)
  return flooded
}

function wrongTimes({ resetS, retryAfterS }: Counted, sentMs: number, doneMs: number): string[] {
  if (!(resetS >= minuteEndS(sentMs) && resetS <= minuteEndS(doneMs)))
    return ['the reset is not the end of the minute']
  // Counted at some moment in between, and rounded up to a second.
  const leftMs = (resetS - (retryAfterS ?? 0)) * 1000
  const isRest = retryAfterS === null || (leftMs <= doneMs && leftMs > sentMs - 1000)
  return isRest ? [] : ['Retry-After is not the rest of the minute']
}

export interface ExactnessOptions {
  floods: Flood[]
  /** Whole minutes in the soak; 0: only until each limit is reached. */
  wholeMinutes: number
  /** In a short run: a turn of the minute that is this near is waited for. */
  turnWithinMs: number
}

export async function expectExact(
  t: Test,
  fleet: Fleet,
  { floods, wholeMinutes, turnWithinMs }: ExactnessOptions,
) {
  const flooded = await undisturbed(t, fleet, () => {
    const nowMs = Date.now()
    const turnMs = minuteEndS(nowMs) * 1000
    const briefly = turnMs - nowMs <= turnWithinMs ? turnMs + afterTurnMs : nowMs
    const fully = wholeMinutes === 0 ? nowMs : turnMs + wholeMinutes * 60_000 + afterTurnMs
    return Promise.all(floods.map((one) => flood(fleet, one, scaled(briefly, fully))))
  })
  const sum = (of: (one: Flooded) => number) => flooded.reduce((total, one) => total + of(one), 0)
  for (const { key, faults, exceeded, minutes } of flooded) {
    const { rate_limit_rpm: limit } = key
    t.same(tally(faults), {}, `limit ${limit}: ${minutes} minutes are exact`)
    t.ok(exceeded >= scaled(1, Math.floor(wholeMinutes / 2)), `limit ${limit}: it was reached`)
  }
  t.same(
    outages(fleet).filter((line) => !isSlow(line)),
    [],
    'all counted in Redis, all the time',
  )
  const counted = {
    minutes: sum((one) => one.minutes),
    requests: sum((one) => one.requests),
    crossing: sum((one) => one.crossing),
    off: sum((one) => one.faults.length),
  }
  if (soaking && wholeMinutes > 0)
    t.ok(counted.crossing > 0, 'requests were under way when the minute turned')
  return { ...counted, keys: flooded.map(({ key }) => key) }
}
