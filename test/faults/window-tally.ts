// The answers of one key, by the minute window they were counted in, and what must be true of each window.
import type { Answer } from '../instance.ts'

export interface Window {
  /** Unix seconds at which it ended: x-ratelimit-reset. */
  reset: number
  /** The numbers left that were told, in the order of the answers. */
  left: number[]
  refused: number
  /** Empty if it came out exact. */
  faults: string[]
}

export interface TallyOptions {
  limit: number
  /** What the store has counted in a minute. */
  counted(minute: number): Promise<string | null>
}

/** When the window ends that a moment lies in, Unix seconds. */
export const windowEndS = (ms: number) => (Math.floor(ms / 60_000) + 1) * 60

const sentIn = ({ left, refused }: Window) => left.length + refused

export function createTally({ limit, counted }: TallyOptions) {
  const open = new Map<number, Window>()
  const windows: Window[] = []
  const faults = new Map<string, number>()
  let crossing = 0

  const wrong = (what: string) => void faults.set(what, (faults.get(what) ?? 0) + 1)

  function windowOf(reset: number): Window {
    let window = open.get(reset)
    if (window === undefined) {
      window = { reset, left: [], refused: 0, faults: [] }
      open.set(reset, window)
    }
    return window
  }

  /** Sent and answered by the wall clock of this machine, which is the store's too. */
  function add({ status, headers }: Answer, sentMs: number, answeredMs: number) {
    const number = (name: string) => Number(headers.get(name) ?? Number.NaN)
    const reset = number('x-ratelimit-reset')
    if (status !== 200 && status !== 429) return wrong(`answered ${status}`)
    if (!(reset >= windowEndS(sentMs) && reset <= windowEndS(answeredMs)))
      wrong(`the reset is ${reset - windowEndS(answeredMs)} s off`)
    if (number('x-ratelimit-limit') !== limit) wrong('another limit is told')
    if (windowEndS(sentMs) < windowEndS(answeredMs)) crossing++
    if (status === 200) return void windowOf(reset).left.push(number('x-ratelimit-remaining'))
    windowOf(reset).refused++
    if (number('x-ratelimit-remaining') !== 0) wrong('refused with some left')
    const retryAfterMs = number('retry-after') * 1000
    // Counted at some moment in between, and rounded up to a second.
    if (retryAfterMs < reset * 1000 - answeredMs || retryAfterMs >= reset * 1000 - sentMs + 1000)
      wrong('Retry-After is not the rest of the window')
  }

  async function close(window: Window): Promise<void> {
    open.delete(window.reset)
    const { reset, left } = window
    const sent = sentIn(window)
    const due = Math.min(limit, sent)
    if (left.length !== due) window.faults.push(`${left.length} admitted of ${sent}, not ${due}`)
    const twice = left.length - new Set(left).size
    if (twice > 0) window.faults.push(`${twice} numbers left were told more than once`)
    if (left.some((one) => !(one < limit && one >= limit - due)))
      window.faults.push(`a number left is not from ${limit - 1} to ${limit - due}`)
    const count = await counted(reset / 60 - 1)
    if (Number(count) !== sent) window.faults.push(`the store counted ${count} of ${sent}`)
    windows.push(window)
  }

  return {
    add,
    sentIn: (reset: number) => (open.has(reset) ? sentIn(open.get(reset)!) : 0),
    /** Whether some window was asked for more than the limit. */
    exceeded: () => [...windows, ...open.values()].some((window) => sentIn(window) > limit),
    /** Judges what is complete: all windows, or those before the newest. Not while a request is under way. */
    async settle({ all }: { all: boolean }) {
      const newest = Math.max(...open.keys())
      for (const window of [...open.values()]) if (all || window.reset < newest) await close(window)
      return { windows, faults: [...faults], crossing }
    },
  }
}
