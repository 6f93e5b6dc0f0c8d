/**
 * Counts in Redis, so that all instances share one count; while Redis is away this instance counts on by itself from the
 * last count it saw, against the full limit.
 *
 * Hits are gathered for a turn of the event loop and go as one call of sql/hit.lua. A call that is not answered in time is
 * not repeated (it may have run): its hits are counted here instead, and nothing more is sent until a probe is answered.
 */
import type { Cluster, Redis } from 'ioredis'
import { createMinuteCounts } from '../memory/minute-counts.ts'
import { minuteOf } from '../rules/window.ts'
import { type Counter, Unavailable } from '../stores.ts'
import { createHits, type Hits } from './hits.ts'
import { loadScripts } from './scripts.ts'

export interface RedisCounterOptions {
  client: Redis | Cluster
  /** Once for each change of mode, with the reason. */
  onMode?: (mode: 'shared' | 'local', reason: string) => void
  onBatch?: (hits: number, keys: number) => void
  now?: () => number
}

/** Distinct keys in one call; Lua's `unpack` ends at about 8,000. */
const callKeysMax = 1000
/** Calls under way at once; what arrives meanwhile gathers into fewer, larger ones. */
const callsMax = 2
/** Hits waiting for an answer, about 100 bytes each; one more is shed. */
const waitingMax = 50_000
const answerTimeoutMs = 100
const probeEveryMs = 200
/** A connection that answers no probe for this long is replaced: its peer may be gone without a word. */
const staleAfterMs = 1000
const raiseTimeoutMs = 500
const raiseAtOnce = 500
/** Longer than any instance believes a cached copy (60 s at most, see gate.ts). */
const versionTtlS = 600

export function createRedisCounter(options: RedisCounterOptions): Counter {
  const { client, onMode, onBatch, now = Date.now } = options
  const scripts = loadScripts(client)
  const lastCounts = createMinuteCounts()
  let mode: 'shared' | 'local' = 'shared'
  let gathered: Hits[] = []
  let waiting = 0
  let callsUnderWay = 0
  let scheduled = false
  /** Redis's clock less ours: while Redis is away the windows stay where they were. */
  let clockAheadMs = 0
  let lastKeyId: string | undefined
  let probing: NodeJS.Timeout | undefined
  let closed = false

  function schedule() {
    if (scheduled || gathered.length === 0 || callsUnderWay >= callsMax) return
    scheduled = true
    setImmediate(flush)
  }

  function flush() {
    scheduled = false
    while (gathered.length > 0 && callsUnderWay < callsMax) call(gathered.shift()!)
  }

  function call(hits: Hits) {
    callsUnderWay++
    onBatch?.(hits.size(), hits.keyIds.length)
    lastKeyId = hits.keyIds[0]
    const sent = scripts.hit(hits.keyIds, hits.sums)
    answerOf(sent, answerTimeoutMs).then(
      (answer) => {
        shared(hits, answer)
        called(hits)
      },
      (error: Error) => {
        goLocal(error.message)
        local(hits)
        called(hits)
        // The call may still run: what it answers late is at least known.
        sent.then((answer) => remember(hits, answer)).catch(() => {})
      },
    )
  }

  function called(hits: Hits) {
    waiting -= hits.size()
    callsUnderWay--
    schedule()
  }

  function shared(hits: Hits, answer: number[]) {
    const nowMs = answer[0]! * 1000 + Math.floor(answer[1]! / 1000)
    clockAheadMs = nowMs - now()
    const minute = minuteOf(nowMs)
    const counts = hits.sums.map((sum, i) => lastCounts.add(hits.keyIds[i]!, minute, sum, answer[2 + 2 * i]))
    const versions = hits.sums.map((_, i) => answer[3 + 2 * i]!)
    hits.answer(counts, versions, { nowMs, monoMs: performance.now(), vouched: true })
  }

  function remember(hits: Hits, answer: number[]) {
    const minute = Math.floor(answer[0]! / 60)
    hits.keyIds.forEach((keyId, i) => {
      lastCounts.add(keyId, minute, 0, answer[2 + 2 * i])
    })
  }

  function local(hits: Hits) {
    const nowMs = now() + clockAheadMs
    const counts = hits.sums.map((sum, i) => lastCounts.add(hits.keyIds[i]!, minuteOf(nowMs), sum))
    const versions = hits.sums.map(() => 0)
    hits.answer(counts, versions, { nowMs, monoMs: performance.now(), vouched: false })
  }

  function goLocal(reason: string) {
    if (mode === 'local' || closed) return
    mode = 'local'
    onMode?.('local', reason)
    const rest = gathered
    gathered = []
    for (const hits of rest) {
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
        if (client.status !== 'ready') throw new Unavailable('not connected')
        if (lastKeyId === undefined) await answerOf(client.ping(), answerTimeoutMs)
        else await answerOf(scripts.hit([lastKeyId], [0]), answerTimeoutMs)
        mode = 'shared'
        onMode?.('shared', 'Redis answers again')
        return
      } catch (error) {
        // An error is an answer too: the connection is alive.
        if (!(error instanceof Unavailable)) answeredAtMs = performance.now()
      }
      if (closed) return
      if (performance.now() - answeredAtMs > staleAfterMs) {
        answeredAtMs = performance.now()
        client.disconnect(true)
      }
      probe(answeredAtMs)
    }, probeEveryMs)
    probing.unref()
  }

  client.on('close', () => goLocal('the connection is closed'))
  if (client.status !== 'ready') goLocal('not connected yet')

  return {
    get mode() {
      return mode
    },
    hit(keyId, onCounted) {
      if (mode === 'local') {
        const nowMs = now() + clockAheadMs
        const number = lastCounts.add(keyId, minuteOf(nowMs), 1)
        onCounted(number, 0, { nowMs, monoMs: performance.now(), vouched: false })
        return true
      }
      if (waiting >= waitingMax) return false
      waiting++
      let last = gathered.at(-1)
      if (last === undefined || last.keyIds.length >= callKeysMax) {
        last = createHits()
        gathered.push(last)
      }
      last.add(keyId, onCounted)
      schedule()
      return true
    },
    async raise(versions) {
      try {
        for (let i = 0; i < versions.length; i += raiseAtOnce) {
          const raised = versions
            .slice(i, i + raiseAtOnce)
            .map(({ keyId, version }) => scripts.raiseVersion(keyId, version, versionTtlS))
          await answerOf(Promise.all(raised), raiseTimeoutMs)
        }
        return true
      } catch {
        return false
      }
    },
    async close() {
      closed = true
      clearTimeout(probing)
      client.disconnect()
    },
  }
}

/**
 * The answer, or Unavailable after the time. Time in which this process itself was busy does not count: the answer may
 * lie unread in the socket, so it gets one more turn of the event loop, and a little longer after a long pause.
 */
function answerOf<T>(sent: Promise<T>, timeoutMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const giveUp = () => reject(new Unavailable(`no answer in ${timeoutMs} ms`))
    const wait = (ms: number, patience: number) => {
      const dueMs = performance.now() + ms
      return setTimeout(() => {
        const paused = performance.now() - dueMs > 20
        if (paused && patience > 0) timer = wait(timeoutMs / 2, patience - 1)
        else setImmediate(giveUp)
      }, ms)
    }
    let timer = wait(timeoutMs, 2)
    const settle = () => clearTimeout(timer)
    sent.then(
      (answer) => {
        settle()
        resolve(answer)
      },
      (error) => {
        settle()
        reject(error)
      },
    )
  })
}
