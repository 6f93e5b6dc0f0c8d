/** A key's usage history: what is stored, and the minutes that are not stored yet from the counter. */
import type { Usage, UsageQuery } from '../../schemas/usage.ts'
import { type RangeFault, stepStartS, usageRange } from '../rules/usage-range.ts'
import { minuteOf } from '../rules/window.ts'
import type { Counter, StoredKey, UsageStore } from '../stores.ts'

export interface UsageHistory {
  /** `lane`: the user's id or the operator, in whose queue for a connection to wait. */
  read(
    key: Pick<StoredKey, 'id' | 'rateLimitRpm' | 'createdAt'>,
    query: UsageQuery,
    lane?: string,
  ): Promise<{ ok: true; usage: Usage } | RangeFault>
}

export interface UsageHistoryOptions {
  usage: Pick<UsageStore, 'read'>
  counter: Pick<Counter, 'now' | 'countsOf' | 'mayLackCounts'>
}

export const createUsageHistory = ({ usage, counter }: UsageHistoryOptions): UsageHistory => ({
  async read({ id, rateLimitRpm, createdAt: storedAt }, query, lane) {
    const nowMs = await counter.now()
    const nowS = Math.floor(nowMs / 1000)
    const found = usageRange(query, nowS)
    if (!found.ok) return found
    const { step, sinceS, untilS } = found.range
    const minutes = [minuteOf(nowMs) - 1, minuteOf(nowMs)]
    const { counts, mode } = await counter.countsOf([id], minutes)
    const live = minutes
      .map((minute, i) => ({
        start: minute * 60,
        requests: counts[i]!,
        limited: Math.max(0, counts[i]! - rateLimitRpm),
      }))
      .filter(({ requests }) => requests > 0)
    const { data, incomplete, createdAt } = await usage.read(
      { id, createdAt: storedAt },
      found.range,
      { nowS, live, isLocal: mode === 'local' },
      lane,
    )
    const lacking = minutes
      // Nothing can be missing from before the key was created.
      .filter((minute) => counter.mayLackCounts(minute) && minute >= minuteOf(createdAt * 1000))
      .map((minute) => stepStartS(step, minute * 60))
      .filter((start) => start >= sinceS && start < untilS)
    return {
      ok: true,
      usage: {
        object: 'usage',
        key_id: id,
        step,
        since: sinceS,
        until: untilS,
        data,
        incomplete: [...new Set([...incomplete, ...lacking])].sort((a, b) => a - b),
      },
    }
  },
})
