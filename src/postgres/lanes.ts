/**
 * Who may use a connection next. A lane (a user, say) has half of the places at most, and a queue of its own; where all places
 * are taken the lanes take turns. So one user's flood neither holds every connection nor stands in front of anyone else.
 */
import { Overloaded } from '../stores.ts'

export interface Lanes {
  /** Takes a place: at once (undefined) or once the promise resolves. Throws Overloaded if too many are waiting. */
  enter(lane?: string): Promise<void> | undefined
  leave(lane?: string): void
}

/** Works waiting in one lane: more than 300 connections, and about what two places do within a second. */
const laneWaitingMax = 500
/** And in all lanes. */
const waitingMax = 10_000
/** Of works that name no lane. It may have every place. */
const anyone = ''

interface Lane {
  running: number
  placesMax: number
  waiting: (() => void)[]
}

export function createLanes(places: number): Lanes {
  /** Those with works running or waiting; the one whose turn is next comes first. */
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

  /** Gives a free place to the next lane that has a use for it. */
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
      if (lane.waiting.length >= laneWaitingMax || waiting >= waitingMax)
        throw new Overloaded('too many requests are waiting for Postgres')
      waiting++
      return new Promise((resolve) => lane.waiting.push(resolve))
    },
    leave(name = anyone) {
      const lane = laneOf(name)
      running--
      lane.running--
      if (lane.running === 0 && lane.waiting.length === 0) lanes.delete(name)
      startNext()
    },
  }
}
