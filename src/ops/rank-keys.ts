/** The busiest keys out of the highest counts of a minute, with their names, owners and limits. */
import {
  type Counter,
  type KeyCount,
  type KeyStore,
  type Operator,
  type RankBy,
  type RankedKey,
  Unavailable,
} from '../stores.ts'
import type { TopCounts } from './top-counts.ts'

export interface RankingOptions {
  counter: Pick<Counter, 'countsOf'>
  keys: Pick<KeyStore, 'rank'>
}

export interface Ranking {
  /** Whether Postgres answered: otherwise names and limits are null, and the order is by use. */
  named: boolean
  /** At most 100. */
  keys: RankedKey[]
}

export interface Ranked {
  minute: number
  top: TopCounts
  /** The minute is not over, so counts are read again. */
  isRising: boolean
  by: RankBy
  lane: Operator
}

const rankedMax = 100
/**
 * Postgres looks up the limits of that many keys in 30 ms. With more keys in a minute, the order by
 * share is that of the most used ones.
 */
export const candidatesMax = 10_000

export async function rankKeys(
  { counter, keys }: RankingOptions,
  { minute, top, isRising, by, lane }: Ranked,
): Promise<Ranking> {
  const candidates = top.highest(by === 'share' ? candidatesMax : rankedMax)
  const ranking = await keys
    .rank(candidates, { by, limit: rankedMax, lane })
    .then((keys) => ({ named: true, keys }))
    .catch((error) => {
      if (!(error instanceof Unavailable)) throw error
      return { named: false, keys: candidates.slice(0, rankedMax).map(unnamed) }
    })
  if (!isRising) return ranking
  const risen = ranking.keys.map(async (key) => {
    const { counts } = await counter.countsOf(key.id, [minute])
    return { ...key, used: Math.max(key.used, counts[0]!) }
  })
  const heightOf = ({ used, rateLimitRpm }: RankedKey) =>
    by === 'share' && ranking.named ? used / (rateLimitRpm ?? Infinity) : used
  return { ...ranking, keys: (await Promise.all(risen)).sort((a, b) => heightOf(b) - heightOf(a)) }
}

const unnamed = ({ keyId, count }: KeyCount): RankedKey => ({
  id: keyId,
  used: count,
  name: null,
  displayPrefix: null,
  userId: null,
  userName: null,
  rateLimitRpm: null,
})
