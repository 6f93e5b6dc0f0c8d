/** Checks that requests are counted exactly, as long as Redis loses nothing. */
import type { Counted, World } from './instance.ts'

const minuteMs = 60_000

export interface Counting {
  onHit(keyId: string): void
  onCounted(keyId: string, counted: Counted): void
  /** Redis may have lost counts, or count in another minute. */
  countsLost(): void
}

/** What the checks need of a run. */
export interface Run extends Pick<World, 'time' | 'redis'> {
  /** How long instances have been paused, all together. */
  pausedMs: number
  /** Redis's clock has jumped. */
  clockJumped: boolean
  /** When Redis last lost data. */
  redisLostAtMs: number
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
    countsLost() {
      for (const minute of minutes.values()) minute.exact = false
      lostAtMs = run.time.nowMs
    },
  }
}
