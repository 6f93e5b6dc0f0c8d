/**
 * Counting on one Redis server: the whole store, or one node of a cluster.
 *
 * Hits are gathered for a turn of the event loop and go as one call of sql/redis/hit.lua (in a cluster one for each API key, which the
 * client sends together). A call that is not answered in time is not repeated (it may have run): its hits are counted by this
 * instance instead, from the last count seen, and nothing more is sent until a probe is answered.
 *
 * A shard begins as a new one: hits are sent, but that the server counts is only said once it has.
 */
import type { MinuteCounts } from '../memory/minute-counts.ts'
import { minuteOf } from '../rules/window.ts'
import type { OnCounted, Outage } from '../stores.ts'
import { createHits, type Hits } from './hits.ts'
import { isAnswer, outageOf } from './outage.ts'
import type { Scripts } from './scripts.ts'
import { withTimeout } from './with-timeout.ts'

export interface ShardOptions {
  scripts: Pick<Scripts, 'hit'>
  lastCounts: MinuteCounts
  /** Which calls hits on a key may share: in a cluster only those on the same, since a slot may be on its way, key by key. */
  groupOf: (keyId: string) => string
  /** Why nothing can be sent; null while connected. */
  fault: () => Error | null
  /** Has the server write what a count writes: one that answers PING may still be unable to count. */
  probe: () => Promise<number[]>
  /** Asks where the keys are: after a failover they are elsewhere, and a node that is silent does not say so. */
  locate: () => void
  /** Replaces the connection: it has been silent for too long. */
  reconnect: () => void
  /** Null when the server counts again. Called again where an outage turns out to have another cause that lasts. */
  onOutage: (outage: Outage | null) => void
  onBatch?: ((hits: number, keys: number) => void) | undefined
  now: () => number
  answerTimeoutMs: number
}

export interface Shard {
  /** Whether the server counts, as far as its last answer says. */
  readonly isShared: boolean
  /** Why this instance counts in its place. */
  readonly outage: Outage | null
  /** False when full: nothing was counted. */
  hit(keyId: string, onCounted: OnCounted): boolean
  /** Counts locally from now on, until Redis answers a probe. */
  goLocal(error: Error): void
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
/** A new shard waits this long for its connection before it says that there is none. */
const newForMs = 1000
const newProbeEveryMs = 20

/** What does not heal by itself, so that somebody must know of it. */
const lasting: Outage['cause'][] = ['wrong_password', 'no_permission', 'certificate', 'tls', 'unknown_host']

export function createShard(options: ShardOptions): Shard {
  const { scripts, lastCounts, groupOf, fault, locate, reconnect, onOutage, onBatch, now, answerTimeoutMs } =
    options
  let state: 'new' | 'shared' | 'local' = 'new'
  let outage: Outage | null = null
  const reported = new Set<Outage['cause']>()
  const newUntilMs = performance.now() + newForMs
  /** Calls being filled, by group, and those that have no room left. */
  let gathered = new Map<string, Hits>()
  let full: Hits[] = []
  let waiting = 0
  let turnsUnderWay = 0
  let scheduled = false
  /** Redis's clock less ours: while Redis is away the windows stay where they were. */
  let clockAheadMs = 0
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
    const sent = scripts.hit(hits.keyIds, hits.sums)
    withTimeout(sent, answerTimeoutMs).then(
      (answer) => {
        shared(hits, answer)
        answered(hits)
      },
      (error: Error) => {
        goLocal(error)
        local(hits)
        answered(hits)
        // The call may still run: what it answers late is at least known.
        sent.then((answer) => remember(hits, answer)).catch(() => {})
      },
    )
  }

  function readClock([seconds, micros]: number[]): number {
    const nowMs = seconds! * 1000 + Math.floor(micros! / 1000)
    clockAheadMs = nowMs - now()
    return nowMs
  }

  function shared(hits: Hits, answer: number[]) {
    if (state === 'new') state = 'shared'
    const nowMs = readClock(answer)
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

  function goLocal(error: Error) {
    if (state === 'local' || closed) return
    state = 'local'
    explain(error)
    for (const hits of take()) {
      waiting -= hits.size()
      local(hits)
    }
    clearTimeout(probing)
    probe(performance.now())
  }

  /** Says why: at the beginning of an outage, and once for each cause that lasts. */
  function explain(error: Error) {
    // Without a connection a call fails without a cause.
    outage = outageOf(fault() ?? error)
    const { cause } = outage
    if (reported.size > 0 && (reported.has(cause) || !lasting.includes(cause))) return
    reported.add(cause)
    onOutage(outage)
  }

  function goShared(answer: number[]) {
    readClock(answer)
    const wasLocal = state === 'local'
    state = 'shared'
    outage = null
    reported.clear()
    if (wasLocal) onOutage(null)
  }

  function probe(silentSinceMs: number) {
    const ask = async () => {
      const unreachable = fault()
      if (unreachable) throw unreachable
      return withTimeout(options.probe(), answerTimeoutMs)
    }
    const timer = setTimeout(
      () =>
        ask().then(
          (answer) => timer === probing && goShared(answer),
          (error) => timer === probing && notCounting(error, silentSinceMs),
        ),
      state === 'new' ? newProbeEveryMs : probeEveryMs,
    )
    timer.unref()
    probing = timer
  }

  function notCounting(error: Error, silentSinceMs: number) {
    const nowMs = performance.now()
    if (state === 'new' && fault() && nowMs < newUntilMs) return probe(silentSinceMs)
    if (state !== 'local') return goLocal(error)
    explain(error)
    locate()
    // An error is an answer too: the connection is alive. But a replica will not count: the master may be elsewhere now.
    const isAlive = isAnswer(error) && outage!.cause !== 'read_only'
    const isStale = nowMs - silentSinceMs > staleAfterMs
    if (!isAlive && isStale) reconnect()
    probe(isAlive || isStale ? nowMs : silentSinceMs)
  }

  probe(performance.now())

  return {
    get isShared() {
      return state === 'shared'
    },
    get outage() {
      return outage
    },
    hit(keyId, onCounted) {
      if (state === 'local') {
        const nowMs = now() + clockAheadMs
        const number = lastCounts.add(keyId, minuteOf(nowMs), 1)
        if (number < 1) return false
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
      probing = undefined
    },
  }
}
