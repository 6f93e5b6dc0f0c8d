/**
 * Gathers hits into calls: all that arrive in one turn of the event loop go to Redis as one call
 * (in a cluster one for each API key, which the client sends together). While as many turns as
 * allowed are in flight, hits gather into fewer, larger calls.
 */
import type { OnCounted } from '../stores.ts'
import { createHits, type Hits } from './hits.ts'
import { createPace } from './pace.ts'

/**
 * Sends one call, and calls `answered` once each of its hits has been answered: by Redis
 * (`isShared`) or locally.
 */
export type Send = (hits: Hits, answered: (isShared: boolean) => void) => void

export interface Calls {
  /** From now on calls are sent with this. Hits added before wait. */
  start(send: Send): void
  /** False when full: the hit was not added. */
  add(keyId: string, onCounted: OnCounted): boolean
  /** Redis is down: takes out the hits that are not sent yet. */
  take(): Hits[]
}

/** Distinct keys in one call; Lua's `unpack` takes at most about 8,000. */
const callKeysMax = 1000
/** Hits waiting for an answer, about 100 bytes each. One more is shed. */
const waitingMax = 50_000

/** `groupOf`: hits may share a call only if their keys are in the same group. */
export function createCalls(groupOf: (keyId: string) => string): Calls {
  let send: Send | null = null
  /** Calls being filled, by group, and those that have no room left. */
  let gathered = new Map<string, Hits>()
  let full: Hits[] = []
  let waiting = 0
  let turnsInFlight = 0
  let scheduled = false
  const pace = createPace()

  function schedule() {
    if (scheduled || gathered.size === 0 || turnsInFlight >= pace.turnsMax || send === null) return
    scheduled = true
    setImmediate(flush, send)
  }

  function flush(send: Send) {
    scheduled = false
    const sentAtMs = performance.now()
    // If it is too early, the next hit or answer tries again.
    if (gathered.size === 0 || !pace.allows(turnsInFlight, sentAtMs)) return
    const calls = gatheredCalls()
    const alone = turnsInFlight === 0
    turnsInFlight++
    let unanswered = calls.length
    for (const hits of calls) {
      send(hits, (isShared) => {
        if (isShared) pace.answered(performance.now() - sentAtMs, alone)
        waiting -= hits.size()
        if (--unanswered > 0) return
        turnsInFlight--
        schedule()
      })
    }
  }

  function gatheredCalls(): Hits[] {
    const calls = [...full, ...gathered.values()]
    full = []
    gathered = new Map()
    return calls
  }

  return {
    start(given) {
      send = given
      schedule()
    },
    add(keyId, onCounted) {
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
    take() {
      pace.reset()
      const calls = gatheredCalls()
      for (const hits of calls) waiting -= hits.size()
      return calls
    },
  }
}
