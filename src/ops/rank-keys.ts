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
  /** Whether Postgres answered: otherwise names and limits are null, and both orders are by use. */
  named: boolean
  /** At most 100 in each order. */
  keys: Record<RankBy, RankedKey[]>
}

interface Ranked {
  minute: number
  top: TopCounts
  finalists: Finalists
  /** The minute is not over, so counts are read again. */
  isRising: boolean
  lane: Operator
}

/** What is known of the last ranking. Each one updates it. */
export interface Finalists {
  /** The keys it ranked highest by share, or all its candidates if Postgres did not answer. */
  keyIds: string[]
  /** When it began. */
  monoMs: number
}

/** As many as a page of the API has at most. */
const rankedMax = 100
/** With more keys in a minute, the order by share is that of the most used ones. */
export const candidatesMax = 10_000
/**
 * The first ranking takes all candidates, which costs Postgres 30 ms. While someone is watching,
 * each later one takes this many of the best of the last one and as many of the most used keys.
 */
const finalistsMax = 150
/**
 * It also takes this many of the keys that are new or have doubled since. To rank every key that
 * has risen would be to rank all keys in use every second.
 */
const risenMax = 1000
/** Nobody watches if the last ranking was this long ago: longer than a view of an unread minute. */
const watchedMs = 6000

export async function rankKeys({ counter, keys }: RankingOptions, ranked: Ranked): Promise<Ranking> {
  const { minute, top, finalists, isRising, lane } = ranked
  const candidates = candidatesOf(ranked)
  const { named, found } = await keys
    .rank(candidates, { limit: finalistsMax, lane })
    .then((found) => ({ named: true, found }))
    .catch((error) => {
      if (!(error instanceof Unavailable)) throw error
      return { named: false, found: top.highest(rankedMax).map(unnamed) }
    })
  const share = named ? shareOf : usedOf
  const best = { used: highest(found, usedOf), share: highest(found, share) }
  finalists.keyIds = named
    ? best.share.slice(0, finalistsMax).map(({ id }) => id)
    : candidates.map(({ keyId }) => keyId)
  const keysShown = { used: best.used.slice(0, rankedMax), share: best.share.slice(0, rankedMax) }
  if (isRising) await countAgain(counter, minute, [...new Set([...keysShown.used, ...keysShown.share])])
  return { named, keys: { used: highest(keysShown.used, usedOf), share: highest(keysShown.share, share) } }
}

function candidatesOf({ top, finalists }: Ranked): KeyCount[] {
  const nowMs = performance.now()
  const isWatched = nowMs - finalists.monoMs < watchedMs
  finalists.monoMs = nowMs
  const risen = top.takeRisen(isWatched ? risenMax : Infinity)
  if (!isWatched) return top.highest(candidatesMax)
  const some = [...top.highest(finalistsMax), ...top.of(finalists.keyIds), ...risen]
  return [...new Map(some.map((one) => [one.keyId, one])).values()]
}

async function countAgain(counter: Pick<Counter, 'countsOf'>, minute: number, shown: RankedKey[]) {
  if (shown.length === 0) return
  const keyIds = shown.map(({ id }) => id)
  const { counts } = await counter.countsOf(keyIds, [minute])
  shown.forEach((key, i) => {
    key.used = Math.max(key.used, counts[i]!)
  })
}

const usedOf = ({ used }: RankedKey) => used
const shareOf = ({ used, rateLimitRpm }: RankedKey) => used / (rateLimitRpm ?? Infinity)

const highest = (keys: RankedKey[], heightOf: (key: RankedKey) => number) =>
  [...keys].sort((a, b) => heightOf(b) - heightOf(a) || (a.id < b.id ? -1 : 1))

const unnamed = ({ keyId, count }: KeyCount): RankedKey => ({
  id: keyId,
  used: count,
  name: null,
  displayPrefix: null,
  userId: null,
  userName: null,
  rateLimitRpm: null,
})
