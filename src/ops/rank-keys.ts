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
  finalists: Finalists
  /** The minute is not over, so counts are read again. */
  isRising: boolean
  by: RankBy
  lane: Operator
}

/** What is known of the last ranking by share. Each one updates it. */
export interface Finalists {
  /** Those that it put first. */
  keyIds: string[]
  /** When it began. */
  monoMs: number
}

const rankedMax = 100
/** With more keys in a minute, the order by share is that of the most used ones. */
export const candidatesMax = 10_000
/**
 * The first ranking by share takes all candidates, which costs Postgres 30 ms. While someone is
 * watching, each later one takes this many of the best of the last one and as many of the most used
 * keys.
 */
const finalistsMax = 150
/** It also takes this many of the other keys, in turn. */
const othersMax = 1000
/** Nobody watches if the last ranking was this long ago: longer than a view of an unread minute. */
const watchedMs = 6000

export async function rankKeys({ counter, keys }: RankingOptions, ranked: Ranked): Promise<Ranking> {
  const { minute, isRising, by, lane } = ranked
  const candidates = by === 'share' ? shareCandidates(ranked) : ranked.top.highest(rankedMax)
  const ranking = await keys
    .rank(candidates, { by, limit: by === 'share' ? finalistsMax : rankedMax, lane })
    .then((keys) => ({ named: true, keys }))
    .catch((error) => {
      if (!(error instanceof Unavailable)) throw error
      return { named: false, keys: candidates.slice(0, rankedMax).map(unnamed) }
    })
  if (by === 'share' && ranking.named) ranked.finalists.keyIds = ranking.keys.map(({ id }) => id)
  const shown = ranking.keys.slice(0, rankedMax)
  if (!isRising || shown.length === 0) return { ...ranking, keys: shown }
  const keyIds = shown.map(({ id }) => id)
  const { counts } = await counter.countsOf(keyIds, [minute])
  const risen = shown.map((key, i) => ({ ...key, used: Math.max(key.used, counts[i]!) }))
  const heightOf = ({ used, rateLimitRpm }: RankedKey) =>
    by === 'share' && ranking.named ? used / (rateLimitRpm ?? Infinity) : used
  return { ...ranking, keys: risen.sort((a, b) => heightOf(b) - heightOf(a)) }
}

function shareCandidates({ top, finalists }: Ranked): KeyCount[] {
  const nowMs = performance.now()
  const isWatched = nowMs - finalists.monoMs < watchedMs
  finalists.monoMs = nowMs
  if (!isWatched) return top.highest(candidatesMax)
  const some = [...top.highest(finalistsMax), ...top.of(finalists.keyIds), ...top.next(othersMax)]
  return [...new Map(some.map((one) => [one.keyId, one])).values()]
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
