/**
 * Counting on one Redis server: the whole store, or one node of a cluster.
 *
 * Hits are gathered for a turn of the event loop and go as one call of sql/redis/hit.lua (in a cluster one for each API key, which the
 * client sends together). A call that is not answered in time is not repeated (it may have run): its hits are counted by this
 * instance instead, from the last count seen, and nothing more is sent until a probe is answered.
 */
import type { MinuteCounts } from '../memory/minute-counts.ts'
import { minuteOf } from '../rules/window.ts'
import { type OnCounted, Unavailable } from '../stores.ts'
import { createHits, type Hits } from './hits.ts'
import type { Scripts } from './scripts.ts'
import { withTimeout } from './with-timeout.ts'

export type Mode = 'shared' | 'local'

export interface ShardOptions {
  scripts: Scripts
  lastCounts: MinuteCounts
  /** Which calls hits on a key may share: in a cluster only those on the same, since a slot may be on its way, key by key. */
  groupOf: (keyId: string) => string
  isConnected: () => boolean
  /** Asks where the keys are: after a failover they are elsewhere, and a node that is silent does not say so. */
  locate: () => void
  /** Replaces the connection: it has been silent for too long. */
  reconnect: () => void
  onMode: (mode: Mode, reason: string) => void
  onBatch?: ((hits: number, keys: number) => void) | undefined
  now: () => number
  answerTimeoutMs: number
}

export interface Shard {
  readonly mode: Mode
  /** False when full: nothing was counted. */
  hit(keyId: string, onCounted: OnCounted): boolean
  /** Counts by itself from now on, until Redis answers a probe. */
  goLocal(reason: string): void
  close(): void
}

/** Distinct keys in one call; Lua's `unpack` ends at about 8,000. */
const callKeysMax = 1000
/** Turns under way at once; what arrives meanwhile gathers into fewer, larger calls. */
const turnsMax = 2
/** Hits waiting for an answer, about 100 bytes each; one more is shed. */
const waitingMax = 50_000
const probeEveryMs = 200
/** A connection that answers no probe for this long is replaced: its peer may be gone without a word. */
const staleAfterMs = 1000

export function createShard(options: ShardOptions): Shard {
  const {
    scripts,
    lastCounts,
    groupOf,
    isConnected,
    locate,
    reconnect,
    onMode,
    onBatch,
    now,
    answerTimeoutMs,
  } = options
  let mode: Mode = 'shared'
  /** Calls being filled, by group, and those that have no room left. */
  let gathered = new Map<string, Hits>()
  let full: Hits[] = []
  let waiting = 0
  let turnsUnderWay = 0
  let scheduled = false
  /** Redis's clock less ours: while Redis is away the windows stay where they were. */
  let clockAheadMs = 0
  let lastKeyId: string | undefined
  let probing: NodeJS.Timeout | undefined
  let closed = false

  function schedule() {
    if (scheduled || gathered.size === 0 || turnsUnderWay >= turnsMax) return
    scheduled = true
    setImmediate(flush)
  }

  function flush() {
    scheduled = false
    if (gathered.size === 0) return
    const calls = take()
    turnsUnderWay++
    let unanswered = calls.length
    const answered = (hits: Hits) => {
      waiting -= hits.size()
      if (--unanswered > 0) return
      turnsUnderWay--
      schedule()
    }
    for (const hits of calls) call(hits, answered)
  }

  function take(): Hits[] {
    const taken = [...full, ...gathered.values()]
    full = []
    gathered = new Map()
    return taken
  }

  function call(hits: Hits, answered: (hits: Hits) => void) {
    onBatch?.(hits.size(), hits.keyIds.length)
    lastKeyId = hits.keyIds[0]
    const sent = scripts.hit(hits.keyIds, hits.sums)
    withTimeout(sent, answerTimeoutMs).then(
      (answer) => {
        shared(hits, answer)
        answered(hits)
      },
      (error: Error) => {
        goLocal(error.message)
        local(hits)
        answered(hits)
        // The call may still run: what it answers late is at least known.
        sent.then((answer) => remember(hits, answer)).catch(() => {})
      },
    )
  }

  function shared(hits: Hits, answer: number[]) {
    const nowMs = answer[0]! * 1000 + Math.floor(answer[1]! / 1000)
    clockAheadMs = nowMs - now()
    const minute = minuteOf(nowMs)
    const counts = hits.sums.map((sum, i) => lastCounts.add(hits.keyIds[i]!, minute, sum, answer[2 + 2 * i]))
    const versions = hits.sums.map((_, i) => answer[3 + 2 * i]!)
    hits.answer(counts, versions, { nowMs, monoMs: performance.now(), shared: true })
  }

  function remember(hits: Hits, answer: number[]) {
    const minute = minuteOf(answer[0]! * 1000)
    hits.keyIds.forEach((keyId, i) => {
      lastCounts.add(keyId, minute, 0, answer[2 + 2 * i])
    })
  }

  function local(hits: Hits) {
    const nowMs = now() + clockAheadMs
    const minute = minuteOf(nowMs)
    const counts = hits.sums.map((sum, i) => lastCounts.add(hits.keyIds[i]!, minute, sum))
    const versions = hits.sums.map(() => 0)
    hits.answer(counts, versions, { nowMs, monoMs: performance.now(), shared: false })
  }

  function goLocal(reason: string) {
    if (mode === 'local' || closed) return
    mode = 'local'
    onMode('local', reason)
    for (const hits of take()) {
      waiting -= hits.size()
      local(hits)
    }
    probe(performance.now())
  }

  /** Asks with a real write of nothing: a Redis that answers PING may still be unable to count. */
  function probe(silentSinceMs: number) {
    probing = setTimeout(async () => {
      let answeredAtMs = silentSinceMs
      try {
        if (!isConnected()) throw new Unavailable('not connected')
        const sent = lastKeyId === undefined ? scripts.ping() : scripts.hit([lastKeyId], [0])
        await withTimeout<unknown>(sent, answerTimeoutMs)
        if (closed) return
        mode = 'shared'
        onMode('shared', 'Redis answers again')
        return
      } catch (error) {
        // An error is an answer too: the connection is alive. But a replica will not count: the master may be elsewhere now.
        const isReplica = (error as Error).message.startsWith('READONLY')
        if (!(error instanceof Unavailable) && !isReplica) answeredAtMs = performance.now()
      }
      if (closed) return
      locate()
      if (performance.now() - answeredAtMs > staleAfterMs) {
        answeredAtMs = performance.now()
        reconnect()
      }
      probe(answeredAtMs)
    }, probeEveryMs)
    probing.unref()
  }

  return {
    get mode() {
      return mode
    },
    hit(keyId, onCounted) {
      if (mode === 'local') {
        const nowMs = now() + clockAheadMs
        const number = lastCounts.add(keyId, minuteOf(nowMs), 1)
        onCounted(number, 0, { nowMs, monoMs: performance.now(), shared: false })
        return true
      }
      if (waiting >= waitingMax) return false
      waiting++
      const group = groupOf(keyId)
      let hits = gathered.get(group)
      if (hits === undefined || hits.keyIds.length >= callKeysMax) {
        if (hits !== undefined) full.push(hits)
        hits = createHits()
        gathered.set(group, hits)
      }
      hits.add(keyId, onCounted)
      schedule()
      return true
    },
    goLocal,
    close() {
      closed = true
      clearTimeout(probing)
    },
  }
}
