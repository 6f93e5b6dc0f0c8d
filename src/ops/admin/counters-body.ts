/** What operators read from the counters, as it crosses the wire and as the command line prints it. */
import type { Counters, KeyCounters } from '../../../schemas/counters.ts'
import type { CountingMode } from '../../../schemas/health.ts'
import { minuteOf } from '../../rules/window.ts'
import type { Counter, RankBy, StoredKey } from '../../stores.ts'
import type { BoardView } from '../board.ts'

export const countersBody = (view: BoardView, sort: RankBy, limit: number): Counters => ({
  ...minuteBody(view.minute),
  as_of: Math.floor(view.asOfMs / 1000),
  source: sourceOf(view.mode),
  complete: view.complete,
  scanned: view.scanned,
  fault: view.fault?.cause ?? null,
  lost: view.lost,
  named: view.named,
  keys: view.keys[sort].slice(0, limit).map((key) => ({
    id: key.id,
    name: key.name,
    key_prefix: key.displayPrefix,
    user_id: key.userId,
    user_name: key.userName,
    ...countBody(key.used, key.rateLimitRpm),
  })),
})

/** What one key has used in this minute and the last. */
export async function countersOfKey(
  counter: Pick<Counter, 'now' | 'countsOf' | 'mayLackCounts'>,
  key: StoredKey,
): Promise<KeyCounters> {
  const minute = minuteOf(await counter.now())
  const minutes = [minute, minute - 1]
  const { counts, mode } = await counter.countsOf([key.id], minutes)
  const [current, last] = minutes.map((minute, i) => ({
    minute: minuteBody(minute).minute,
    ...countBody(counts[i]!, key.rateLimitRpm),
    lost: counter.mayLackCounts(minute),
  }))
  return { source: sourceOf(mode), current: current!, last: last! }
}

const sourceOf = (mode: CountingMode) => (mode === 'shared' ? ('redis' as const) : mode)

const minuteBody = (minute: number) => ({ minute: minute * 60, resets_at: (minute + 1) * 60 })

const countBody = (used: number, limit: number | null) => ({
  used,
  limit,
  limited: limit === null ? null : Math.max(used - limit, 0),
})
