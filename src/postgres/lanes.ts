/**
 * Decides who may use a connection next. A lane (for example, a user) gets at most half of the
 * places and has its own queue. When all places are taken, the lanes take turns. So one user's
 * flood neither occupies every connection nor holds up anyone else.
 *
 * Changes of all lanes together leave one place for reads. A commit that waits for a lost
 * synchronous standby obeys no timeout, but reads still work then.
 */
import { Overloaded } from '../stores.ts'

export interface Lanes {
  /**
   * Takes a place: immediately if this returns undefined, otherwise when its turn comes. Throws
   * Overloaded if too many are waiting.
   */
  enter(kind: Kind, lane?: string): Turn | undefined
  leave(kind: Kind, lane?: string): void
}

export type Kind = 'read' | 'change'

export interface Turn {
  /** Resolves when it has its place. */
  readonly come: Promise<void>
  /** Stops waiting. */
  giveUp(): void
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
  waiting: Waiting[]
}

interface Waiting {
  readonly kind: Kind
  readonly start: () => void
}

export function createLanes(places: number): Lanes {
  /** Lanes with work running or waiting. The lane whose turn is next comes first. */
  const lanes = new Map<string, Lane>()
  const changesMax = Math.max(1, places - 1)
  let running = 0
  let changes = 0
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

  function count(lane: Lane, kind: Kind, difference: 1 | -1) {
    running += difference
    lane.running += difference
    if (kind === 'change') changes += difference
  }

  const mayStart = (lane: Lane, kind: Kind) =>
    running < places && lane.running < lane.placesMax && (kind === 'read' || changes < changesMax)

  /** Whether it was still waiting. */
  function stopWaiting(lane: Lane, one: Waiting): boolean {
    const index = lane.waiting.indexOf(one)
    if (index === -1) return false
    lane.waiting.splice(index, 1)
    waiting--
    return true
  }

  /** Gives a free place to the next lane that can use it. Returns whether there is one. */
  function startNext(): boolean {
    for (const [name, lane] of lanes) {
      if (!mayStart(lane, 'read')) continue
      const next = lane.waiting.find(({ kind }) => mayStart(lane, kind))
      if (next === undefined) continue
      lanes.delete(name)
      lanes.set(name, lane)
      stopWaiting(lane, next)
      count(lane, next.kind, 1)
      next.start()
      return true
    }
    return false
  }

  return {
    enter(kind, name = anyone) {
      const lane = laneOf(name)
      if (mayStart(lane, kind)) {
        count(lane, kind, 1)
        return
      }
      if (lane.waiting.length >= laneWaitingMax || waiting >= waitingMax) {
        forgetIdle(name, lane)
        throw new Overloaded('too many requests are waiting for Postgres')
      }
      waiting++
      let start!: () => void
      const come = new Promise<void>((resolve) => {
        start = resolve
      })
      const one = { kind, start }
      lane.waiting.push(one)
      return {
        come,
        giveUp() {
          if (stopWaiting(lane, one)) forgetIdle(name, lane)
        },
      }
    },
    leave(kind, name = anyone) {
      const lane = laneOf(name)
      count(lane, kind, -1)
      forgetIdle(name, lane)
      // The end of a change may let two start: a change of another lane, and a read of this one.
      while (running < places && startNext()) {}
    },
  }
}
