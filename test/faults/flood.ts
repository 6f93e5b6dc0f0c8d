// Requests of one key to all instances, many at once, and whether each minute window came out exact.
import { setTimeout as pause } from 'node:timers/promises'
import { makeCaller } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { scaled } from '../soak.ts'
import { patiently, type ThreeInstances } from './three-instances.ts'
import { createTally, type Window, windowEndS } from './window-tally.ts'

export interface Flood {
  limit: number
  /** Sent in a window, as fast as may be. */
  requests: number
  atOnce: number
}

export interface Flooded {
  limit: number
  /** Each complete, with what was wrong with it. */
  windows: Window[]
  /** Of single answers, with how often. */
  faults: [string, number][]
  /** Requests that were under way when a minute turned. */
  crossing: number
}

/** Before a minute turns nobody rests: requests are to be under way when it does. */
const beforeTurnMs = 1000

/** Goes on until `untilMs` of the wall clock, and until some window was asked for more than its limit. */
export async function flood(
  { urls, operator, redis }: ThreeInstances,
  { limit, requests, atOnce }: Flood,
  untilMs: number,
): Promise<Flooded> {
  const { id, token } = await patiently(() => makeCaller(operator, { rateLimitRpm: limit }))
  const tally = createTally({ limit, counted: (minute) => redis.get(`rl:{${id}}:${minute}`) })
  let next = 0

  async function one() {
    const sentMs = Date.now()
    const answer = await ask(`GET ${urls[next++ % urls.length]}/v1/verify`, { token })
    tally.add(answer, sentMs, Date.now())
  }

  for (;;) {
    await Promise.all(Array.from({ length: atOnce }, one))
    // Nothing of this key is under way, so the windows before the present one are complete.
    await tally.settle({ all: false })
    const nowMs = Date.now()
    const over = nowMs >= untilMs
    if (over && next >= requests && tally.exceeded()) break
    const turnMs = windowEndS(nowMs) * 1000
    if (over || tally.sentIn(turnMs / 1000) < requests * share(turnMs)) continue
    await pause(Math.max(0, Math.min(turnMs - beforeTurnMs, untilMs) - nowMs))
  }
  return { limit, ...(await tally.settle({ all: true })) }
}

/** In the soak every other minute leaves something over, so that there are admissions on both sides of a turn. */
const share = (turnMs: number) => scaled(1, (turnMs / 60_000) % 2 === 0 ? 1 : 0.5)
