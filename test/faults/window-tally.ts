// The answers of one key, by the minute window they were counted in, and what must be true of each window.
import type { Answer } from '../instance.ts'
import { type Counted, countedOf, countFault, faultOf } from './windows.ts'

export interface Window {
  /** Unix seconds at which it ended: x-ratelimit-reset. */
  resetS: number
  answers: Counted[]
  /** What was wrong with it; null if it came out exact. */
  fault: string | null
}

export interface TallyOptions {
  limit: number
  /** What the store has counted in a minute. */
  counted(minute: number): Promise<string | null>
}

/** When the window ends that a moment lies in, Unix seconds. */
export const windowEndS = (ms: number) => (Math.floor(ms / 60_000) + 1) * 60

export function createTally({ limit, counted }: TallyOptions) {
  const open = new Map<number, Window>()
  const windows: Window[] = []
  const faults = new Map<string, number>()
  let crossing = 0

  const wrong = (what: string) => void faults.set(what, (faults.get(what) ?? 0) + 1)

  /** Sent and answered by the wall clock of this machine, which is the store's too. */
  function add(answer: Answer, sentMs: number, answeredMs: number) {
    const one = countedOf(answer)
    const fault = faultOf(one, [limit])
    if (fault !== null) return wrong(fault)
    const { resetS, retryAfterS } = one
    if (!(resetS >= windowEndS(sentMs) && resetS <= windowEndS(answeredMs)))
      wrong(`the reset is ${resetS - windowEndS(answeredMs)} s off`)
    if (windowEndS(sentMs) < windowEndS(answeredMs)) crossing++
    const window = open.get(resetS) ?? { resetS, answers: [], fault: null }
    open.set(resetS, window)
    window.answers.push(one)
    if (retryAfterS === null) return
    // Counted at some moment in between, and rounded up to a second.
    const leftMs = resetS * 1000 - retryAfterS * 1000
    if (leftMs > answeredMs || leftMs <= sentMs - 1000) wrong('Retry-After is not the rest of the window')
  }

  async function close(window: Window): Promise<void> {
    const { resetS, answers } = window
    open.delete(resetS)
    const inRedis = await counted(resetS / 60 - 1)
    window.fault = countFault(answers, limit, inRedis === null ? null : Number(inRedis))
    windows.push(window)
  }

  return {
    add,
    sentIn: (resetS: number) => open.get(resetS)?.answers.length ?? 0,
    /** Whether some window was asked for more than the limit. */
    exceeded: () => [...windows, ...open.values()].some(({ answers }) => answers.length > limit),
    /** Judges what is complete: all windows, or those before the newest. Not while a request is under way. */
    async settle({ all }: { all: boolean }) {
      const newest = Math.max(...open.keys())
      for (const window of [...open.values()]) if (all || window.resetS < newest) await close(window)
      return { windows, faults: [...faults], crossing }
    },
  }
}
