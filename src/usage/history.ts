/** A key's usage history: what is stored, and the minutes that are not stored yet from the counter. */
import { usageStepS } from '../../schemas/bounds.ts'
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
  async read({ id, rateLimitRpm, createdAt }, query, lane) {
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
    const { data, incomplete } = await usage.read(
      id,
      found.range,
      { nowS, live, isLocal: mode === 'local' },
      lane,
    )
    const lacking = minutes
      .filter((minute) => counter.mayLackCounts(minute))
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
        // Nothing can be missing from before the key was created.
        incomplete: [...new Set([...incomplete, ...lacking])]
          .sort((a, b) => a - b)
          .filter((start) => start + usageStepS[step] > createdAt),
      },
    }
  },
})
