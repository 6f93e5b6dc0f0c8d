/** Checks that requests are counted exactly, as long as Redis loses nothing. */
import { answerTimeoutMs } from '../../src/redis/with-timeout.ts'
import type { Counted, World } from './instance.ts'

const minuteMs = 60_000
/** By how much an instance that has heard nothing from Redis for a while may be wrong about its clock. */
const clockOffMsMax = 1000

export interface Counting {
  onHit(keyId: string): void
  onCounted(keyId: string, counted: Counted): void
  onRun(sentAtMs: number): void
  /** Redis may have lost counts, or count in another minute. */
  countsLost(): void
}

/** What the checks need of a run. */
export interface Run extends Pick<World, 'time' | 'redis'> {
  /** How long instances have been paused, all together. */
  pausedMs: number
  /** Redis's clock has jumped. */
  clockJumped: boolean
  /** What Redis's clock says, unless it has jumped. */
  redisMicrosAt(nowMs: number): number
  fail(what: string): void
}

export function createCounting(run: Run): Counting {
  const hits = new Map<string, number>()
  const minutes = new Map<string, { numbers: Set<number>; exact: boolean }>()
  let lostAtMs = -minuteMs

  function minuteOf(name: string) {
    const found = minutes.get(name) ?? { numbers: new Set(), exact: run.time.nowMs - lostAtMs > minuteMs }
    minutes.set(name, found)
    return found
  }

  return {
    onHit: (keyId) => hits.set(keyId, (hits.get(keyId) ?? 0) + 1),
    onCounted(keyId, { count, nowMs, shared }) {
      const minute = minuteOf(`${keyId}:${Math.floor(nowMs / minuteMs)}`)
      if (count > hits.get(keyId)!) run.fail(`${keyId} counted ${count} of ${hits.get(keyId)} requests`)
      if (!shared) minute.exact = false
      else if (minute.exact && minute.numbers.has(count))
        run.fail(`${keyId}: two requests are number ${count}`)
      minute.numbers.add(count)
      if (!shared || run.clockJumped) return
      const redisMs = run.redisMicrosAt(run.time.nowMs) / 1000 + run.redis.master.clockMs
      const offMs = Math.abs(nowMs - redisMs)
      if (offMs > 2000 + run.pausedMs) run.fail(`${keyId} was counted ${offMs} ms off Redis's clock`)
    },
    // In that minute, its instance counts the same hits by itself.
    onRun(sentAtMs) {
      const minuteAt = (nowMs: number) =>
        Math.floor((run.redisMicrosAt(nowMs) / 1000 + run.redis.master.clockMs) / minuteMs)
      if (minuteAt(run.time.nowMs) > minuteAt(sentAtMs + answerTimeoutMs + clockOffMsMax) && !run.clockJumped)
        run.fail('Redis has counted a call in a later minute than that in which it was sent')
    },
    countsLost() {
      for (const minute of minutes.values()) minute.exact = false
      lostAtMs = run.time.nowMs
    },
  }
}
