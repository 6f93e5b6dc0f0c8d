/**
 * The network between one process and one server. Messages of a connection arrive in order, after a
 * delay. While the link is held, they wait, as TCP resends them later; while it is refused, open
 * connections end and new ones fail.
 */
import type { Chance } from './chance.ts'
import type { Time } from './time.ts'

export interface Link {
  heldUntilMs: number
  refusedUntilMs: number
  /** Milliseconds of one way, at most. */
  delayMs: number
}

export const createLink = (): Link => ({ heldUntilMs: 0, refusedUntilMs: 0, delayMs: 1 })

/** One direction of one connection. */
export function createPipe(time: Time, chance: Chance, link: Link) {
  let lastMs = 0
  /** Delivers in order, when the link and the receiver (`readyMs`) let it through. */
  return (readyMs: () => number, deliver: () => void) => {
    lastMs = Math.max(lastMs, time.nowMs + chance.between(0.1, link.delayMs))
    const arrive = () => {
      const waitMs = Math.max(link.heldUntilMs, readyMs())
      if (waitMs > time.nowMs) return void time.at(waitMs, arrive, null)
      deliver()
    }
    time.at(lastMs, arrive, null)
  }
}
