/**
 * Decides who may use a connection next. A lane (for example, a user) gets at most half of the
 * places and has its own queue. When all places are taken, the lanes take turns. So one user's
 * flood neither occupies every connection nor holds up anyone else.
 */
import { Overloaded } from '../stores.ts'

export interface Lanes {
  /**
   * Takes a place: immediately if this returns undefined, otherwise when the promise resolves.
   * Throws Overloaded if too many are waiting.
   */
  enter(lane?: string): Promise<void> | undefined
  leave(lane?: string): void
}

/**
 * How many may wait in one lane. Requests of 300 busy connections stay below it, and two places work
 * through about this many in a second.
 */
const laneWaitingMax = 500
/** How many may wait in all lanes together. */
const waitingMax = 10_000
/** The lane of work that names none. It may take every place. */
const anyone = ''

interface Lane {
  running: number
  placesMax: number
  waiting: (() => void)[]
}

export function createLanes(places: number): Lanes {
  /** Lanes with work running or waiting. The lane whose turn is next comes first. */
  const lanes = new Map<string, Lane>()
  let running = 0
  let waiting = 0

  function laneOf(name: string): Lane {
    let lane = lanes.get(name)
    if (lane === undefined) {
      const placesMax = name === anyone ? places : Math.ceil(places / 2)
      lane = { running: 0, placesMax, waiting: [] }
      lanes.set(name, lane)
    }
    return lane
  }

  function forgetIdle(name: string, lane: Lane) {
    if (lane.running === 0 && lane.waiting.length === 0) lanes.delete(name)
  }

  /** Gives the free place to the next lane that can use it. */
  function startNext() {
    for (const [name, lane] of lanes) {
      if (lane.waiting.length === 0 || lane.running >= lane.placesMax) continue
      lanes.delete(name)
      lanes.set(name, lane)
      waiting--
      running++
      lane.running++
      lane.waiting.shift()!()
      return
    }
  }

  return {
    enter(name = anyone) {
      const lane = laneOf(name)
      if (running < places && lane.running < lane.placesMax) {
        running++
        lane.running++
        return
      }
      if (lane.waiting.length >= laneWaitingMax || waiting >= waitingMax) {
        forgetIdle(name, lane)
        throw new Overloaded('too many requests are waiting for Postgres')
      }
      waiting++
      return new Promise((resolve) => lane.waiting.push(resolve))
    },
    leave(name = anyone) {
      const lane = laneOf(name)
      running--
      lane.running--
      forgetIdle(name, lane)
      startNext()
    },
  }
}
