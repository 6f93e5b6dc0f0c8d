// Makes a change and looks on every instance from the moment of its answer: for how long does anybody act on the old state?
import { setTimeout as pause } from 'node:timers/promises'
import { soaking } from '../soak.ts'
import type { Change } from './key-changes.ts'
import type { ThreeInstances } from './three-instances.ts'

export interface Watch {
  /** What each instance has to wait for after the answer before it is asked first. */
  rest?: () => Promise<unknown>
  /** Asked again and again, so often, */
  everyMs?: number
  /** until so long after the answer. */
  forMs?: number
  /** Asked before, too: from the request for the change on. */
  busy?: boolean
}

export interface Watched {
  name: string
  status: number
  /** From the request for the change to its answer. */
  tookMs: number
  /** How long after that answer the last request was sent that was decided by the old state; null: none was. */
  lateMs: number | null
  /** Requests sent after it, */
  asked: number
  /** those of them that the old state decided, */
  old: number
  /** and those that were answered 503, and sent again: decided by no state at all. */
  undecided: number
}

/** By the instance with this number, modulo three. */
export async function watchChange(
  { urls }: ThreeInstances,
  at: number,
  { name, make, look, isOld }: Change,
  { rest, everyMs = 100, forMs = 0, busy = false }: Watch = {},
): Promise<Watched> {
  const startMs = performance.now()
  let answeredMs = Number.POSITIVE_INFINITY
  let lateMs: number | null = null
  let asked = 0
  let old = 0
  let undecided = 0

  async function once(url: string): Promise<void> {
    const sentMs = performance.now()
    const answer = await look(url)
    if (sentMs < answeredMs) return
    asked++
    if (answer.status === 503) {
      undecided++
      return once(url)
    }
    if (!isOld(answer)) return
    old++
    lateMs = Math.max(lateMs ?? 0, sentMs - answeredMs)
  }
  async function before(url: string) {
    while (busy && answeredMs === Number.POSITIVE_INFINITY) {
      await once(url)
      await pause(everyMs)
    }
  }
  async function after(url: string) {
    await rest?.()
    await once(url)
    while (performance.now() < answeredMs + forMs) {
      await pause(everyMs)
      await once(url)
    }
  }

  const askedBefore = Promise.all(urls.map(before))
  const status = await make(urls[at % urls.length]!)
  answeredMs = performance.now()
  await Promise.all(urls.map(after))
  await askedBefore
  return { name, status, tookMs: answeredMs - startMs, lateMs, asked, old, undecided }
}

/** Looks for a change that was made before. */
export const lookAgain = (three: ThreeInstances, change: Change) =>
  watchChange(three, 0, { ...change, make: async () => 200 })

/** 503s in a hundred requests, on a machine so busy that Postgres misses its deadline. In the soak more would hide what is asked for. */
const undecidedMax = 0.01

/** What went wrong, each kind once with how often: nothing, if all was answered 200 and no old state was acted on after `allowedMs`. */
export function faultsOf(watched: readonly Watched[], allowedMs = -1): [string, number][] {
  const faults = new Map<string, number>()
  const wrong = (what: string) => void faults.set(what, (faults.get(what) ?? 0) + 1)
  for (const { name, status, lateMs } of watched) {
    if (status !== 200) wrong(`${name}: answered ${status}`)
    if (lateMs !== null && lateMs > allowedMs) wrong(`${name}: the old state was acted on`)
  }
  const { asked, undecided } = askedInAll(watched)
  if (soaking && undecided > Math.max(5, asked * undecidedMax)) faults.set('answered 503', undecided)
  return [...faults]
}

export function askedInAll(watched: readonly Watched[]) {
  const sum = (of: (one: Watched) => number) => watched.reduce((total, one) => total + of(one), 0)
  return {
    asked: sum(({ asked }) => asked),
    old: sum(({ old }) => old),
    undecided: sum(({ undecided }) => undecided),
  }
}

/** For a figure. */
export function numbersOf(watched: readonly Watched[]) {
  const { asked, old, undecided } = askedInAll(watched)
  return { changes: watched.length, requests: asked, old, undecided, slowestS: slowestMs(watched) / 1000 }
}

export const slowestMs = (watched: readonly Watched[]) => Math.max(...watched.map(({ tookMs }) => tookMs))
