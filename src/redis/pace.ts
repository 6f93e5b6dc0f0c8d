/**
 * How many turns of hits may be in flight to a Redis server, by the round trip to it.
 *
 * With two, a hit waits for up to half a round trip until it is sent. That is nothing with Redis
 * near, where more turns would only mean smaller calls. The farther Redis is, the more turns there
 * may be, spread over the round trip: a hit waits for a fraction of it.
 *
 * The shortest round trip counts, because a busy server also answers late, but should get fewer and
 * larger calls.
 */

const turnsMin = 2
const turnsMax = 24
/**
 * One turn may be in flight for each 0.1 ms of the round trip: at least twice as long as a turn of
 * the event loop takes.
 */
const msPerTurn = 0.1
/** How many lone calls in a row show that Redis is farther than it was. */
const loneMax = 16

export interface Pace {
  readonly turnsMax: number
  /** Whether one more turn may be sent now, while `inFlight` turns are unanswered. */
  allows(inFlight: number, nowMs: number): boolean
  /** A call was answered. `alone`: nothing else was in flight when it was sent. */
  answered(roundTripMs: number, alone: boolean): void
  /** Another server may answer from now on. */
  reset(): void
}

export function createPace(): Pace {
  let shortestMs = Infinity
  /** Lone calls since the last decision, and the shortest of them. */
  let lone = 0
  let loneShortestMs = Infinity
  let sentAtMs = 0

  function set(roundTripMs: number) {
    shortestMs = roundTripMs
    pace.turnsMax = Math.min(turnsMax, Math.max(turnsMin, Math.floor(roundTripMs / msPerTurn)))
  }

  const pace = {
    turnsMax: turnsMin,
    allows(inFlight: number, nowMs: number) {
      if (inFlight >= pace.turnsMax) return false
      // The first half goes at once, so that no single hit waits. The others keep their distance,
      // or all would go at the start of the round trip and hits would gather during the rest of it.
      const isFree = inFlight < Math.max(turnsMin, pace.turnsMax / 2)
      if (!isFree && nowMs - sentAtMs < shortestMs / pace.turnsMax) return false
      sentAtMs = nowMs
      return true
    },
    answered(roundTripMs: number, alone: boolean) {
      if (roundTripMs < shortestMs) set(roundTripMs)
      if (!alone) return
      loneShortestMs = Math.min(loneShortestMs, roundTripMs)
      if (++lone < loneMax) return
      set(loneShortestMs)
      lone = 0
      loneShortestMs = Infinity
    },
    reset() {
      shortestMs = Infinity
      lone = 0
      loneShortestMs = Infinity
      pace.turnsMax = turnsMin
    },
  }
  return pace
}
