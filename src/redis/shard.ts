/**
 * Counting on one Redis server: the whole store, or one node of a cluster.
 *
 * A call that is not answered in time is not repeated, because it may have run. Its hits are
 * counted by this instance instead, from the last count seen.
 */
import type { MinuteCounts } from '../memory/minute-counts.ts'
import { minuteOf } from '../rules/window.ts'
import type { CountReply, OnCounted } from '../stores.ts'
import { createCalls } from './calls.ts'
import type { Hits } from './hits.ts'
import type { HitReply, Scripts } from './scripts.ts'
import { createServerState, type ServerState, type ServerStateOptions } from './server-state.ts'
import { watchStandstill } from './standstill.ts'
import { withTimeout } from './with-timeout.ts'

export interface ShardOptions extends Omit<ServerStateOptions, 'onClock' | 'onLocal'> {
  scripts: Pick<Scripts, 'hit' | 'mayOvertake'>
  lastCounts: MinuteCounts
  /**
   * Which hits may share a call: in a cluster only those of one key, since a slot may be moving,
   * key by key.
   */
  groupOf: (keyId: string) => string
  onBatch?: ((hits: number, keys: number) => void) | undefined
  /** How many seconds a call took until it was answered, failed or timed out. */
  onCall?: ((seconds: number) => void) | undefined
  /** Our monotonic clock has stood still, or the server's has stepped. Called before the reply is used. */
  onStandstill: () => void
  now: () => number
}

export interface Shard {
  /** Whether the server counts, and if not, why. */
  readonly server: Pick<ServerState, 'mode' | 'outage'>
  /** The server's clock as this instance knows it, Unix milliseconds. */
  nowMs(): number
  /** False when full: nothing was counted. */
  hit(keyId: string, onCounted: OnCounted): boolean
  /** Counts locally from now on, until Redis answers a probe. */
  goLocal(error: Error): void
  /** Something else than a count has failed: if a probe fails too, counts locally. */
  doubt(): void
  close(): void
}

/** What was so when a call was sent. */
interface Sending {
  atMs: number
  minute: number
  /** The last count of the call's first key in that minute. */
  known: number
  /** Those of the shard by then. */
  localHits: number
}

const timeIn = ([seconds, micros]: readonly number[]) => seconds! * 1000 + Math.floor(micros! / 1000)
const isCounted = (reply: HitReply) => reply.length > 2
const countIn = (reply: HitReply, i: number) => reply[2 + 2 * i] as number

export function createShard(options: ShardOptions): Shard {
  const { scripts, lastCounts, groupOf, onBatch, onCall, onStandstill, now, answerTimeoutMs } = options
  const stoodStill = watchStandstill()
  /** Redis's clock less ours. It stays while Redis is down, and so do the windows. */
  let clockAheadMs = 0
  /** How often something was counted by this instance alone. */
  let localHits = 0

  function noticeStandstill(reply: readonly number[], sentAtMs: number) {
    if (stoodStill(timeIn(reply), sentAtMs)) onStandstill()
  }

  function readClock(reply: readonly number[]): number {
    const nowMs = timeIn(reply)
    clockAheadMs = nowMs - now()
    return nowMs
  }

  /** In a cluster, a call has one key. */
  function sendingOf({ keyIds }: Hits): Sending {
    const minute = minuteOf(nowMs())
    const known = lastCounts.of(minute).get(keyIds[0]!) ?? 0
    return { atMs: performance.now(), minute, known, localHits }
  }

  /** Undefined if replies come in order, or if Redis may lack hits that we have counted since. */
  function knownAtSending(sending: Sending, minute: number): number | undefined {
    const isComplete = sending.localHits === localHits && sending.minute === minute
    return scripts.mayOvertake() && isComplete ? sending.known : undefined
  }

  function answer(hits: Hits, reply: HitReply, sending: Sending) {
    noticeStandstill(reply as number[], sending.atMs)
    const nowMs = readClock(reply as number[])
    const minute = minuteOf(nowMs)
    const known = knownAtSending(sending, minute)
    const counts = hits.sums.map((sum, i) =>
      lastCounts.add(hits.keyIds[i]!, minute, sum, countIn(reply, i), known),
    )
    const versions = hits.sums.map((_, i) => reply[3 + 2 * i]!)
    hits.answer(counts, versions, { nowMs, monoMs: performance.now(), shared: true })
  }

  /** The late reply of a call whose hits were counted locally: only the counts are of use. */
  function remember(hits: Hits, reply: HitReply) {
    if (!isCounted(reply)) return
    const minute = minuteOf((reply[0] as number) * 1000)
    hits.keyIds.forEach((keyId, i) => {
      lastCounts.add(keyId, minute, 0, countIn(reply, i))
    })
  }

  const nowMs = () => now() + clockAheadMs
  const localReply = (): CountReply => ({
    nowMs: nowMs(),
    monoMs: performance.now(),
    shared: false,
  })

  function answerLocally(hits: Hits) {
    localHits++
    const reply = localReply()
    const minute = minuteOf(reply.nowMs)
    const counts = hits.sums.map((sum, i) => lastCounts.add(hits.keyIds[i]!, minute, sum))
    const versions = hits.sums.map(() => 0)
    hits.answer(counts, versions, reply)
  }

  /**
   * What Redis runs after the minute in which its reply is still awaited, it does not count. If we
   * do wait for it, its clock has stepped, and nothing was counted.
   */
  async function count({ keyIds, sums }: Hits, isAwaited: () => boolean): Promise<HitReply> {
    for (;;) {
      const reply = await scripts.hit(keyIds, sums, minuteOf(nowMs() + answerTimeoutMs))
      if (isCounted(reply) || !isAwaited()) return reply
      readClock(reply as number[])
    }
  }

  const calls = createCalls(groupOf)
  const server = createServerState({
    ...options,
    async probe() {
      const sentAtMs = performance.now()
      const answer = await options.probe()
      noticeStandstill(answer, sentAtMs)
      return answer
    },
    onClock: readClock,
    onLocal() {
      for (const hits of calls.take()) answerLocally(hits)
    },
  })
  calls.start((hits, answered) => {
    onBatch?.(hits.size(), hits.keyIds.length)
    const sending = sendingOf(hits)
    let isAwaited = true
    const sent = count(hits, () => isAwaited)
    const ended = () => onCall?.((performance.now() - sending.atMs) / 1000)
    withTimeout(sent, answerTimeoutMs).then(
      (reply) => {
        ended()
        server.counted()
        answer(hits, reply, sending)
        answered(true)
      },
      (error: Error) => {
        isAwaited = false
        ended()
        server.failed(error)
        answerLocally(hits)
        answered(false)
        // The call may still run. If its reply comes late, we at least know the counts. Not at once: they
        // include the hits of earlier calls, whose replies may have come with it.
        sent.then((reply) => setImmediate(remember, hits, reply)).catch(() => {})
      },
    )
  })

  return {
    server,
    nowMs,
    hit(keyId, onCounted) {
      if (server.mode !== 'local') return calls.add(keyId, onCounted)
      localHits++
      const reply = localReply()
      const count = lastCounts.add(keyId, minuteOf(reply.nowMs), 1)
      if (count < 1) return false
      onCounted(count, 0, reply)
      return true
    },
    goLocal: server.failed,
    doubt: server.doubt,
    close: server.close,
  }
}
