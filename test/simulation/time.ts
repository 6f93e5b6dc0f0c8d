/**
 * Virtual time for several processes in one. Every timer, turn of an event loop and message is an
 * event that belongs to one of them. Events run one at a time, in the order of their moments, and
 * each runs with the clocks of its process. A process may run fast or slow, pause, or be killed.
 */
import { createRequire, syncBuiltinESMExports } from 'node:module'

export interface Process {
  readonly name: string
  readonly number: number
  /** Of its monotonic clock. */
  readonly rate: number
  /** Its wall clock less the real time. */
  clockMs: number
  /** For how long its monotonic clock has stood still. */
  stoodStillMs: number
  clockJumped: boolean
  /** Its event loop is busy until then. */
  pausedUntilMs: number
  killed: boolean
}

let processes = 0

export const createProcess = (name: string, rate = 1, clockMs = 0): Process => ({
  name,
  number: processes++,
  rate,
  clockMs,
  stoodStillMs: 0,
  clockJumped: false,
  pausedUntilMs: 0,
  killed: false,
})

/** The order of an event loop: after a pause, timers that are due run before messages are read. */
const phases = { timers: 0, messages: 1, immediates: 2 } as const

interface Event {
  atMs: number
  phase: number
  number: number
  owner: Process | null
  /** Null once it is cancelled. */
  run: (() => void) | null
}

/** Takes a line of a readable trace, where somebody reads it. */
export type Trace = ((line: string) => void) | undefined

/** When a run starts, Unix milliseconds; 5 s before a minute ends. */
export const startMs = 29_000_000 * 60_000 + 55_000

export interface Time {
  readonly nowMs: number
  /** The process that runs now; null for the network and the servers. */
  readonly current: Process | null
  /** How many events have run. */
  readonly events: number
  at(atMs: number, run: () => void, owner?: Process | null, phase?: number): () => void
  /** Its machine is suspended: nothing runs, and its monotonic clock and timers stand still. */
  suspend(process: Process, forMs: number): void
  /** Runs events until nothing is left, the time is over, or `stop` is called. */
  run(untilMs: number): Promise<void>
  stop(): void
}

// Taken before the simulation replaces it.
const nextTurn = setImmediate
/** Node polls its sockets after so many turns. */
const turnsAtOnce = 256
let turnsLeft = 0
/** What a turn of Node's event loop does, while a run is under way. */
let turn: (() => void) | null = null

function queueTurns() {
  turnsLeft = turnsAtOnce
  for (let i = 0; i < turnsAtOnce; i++) nextTurn(takeTurn)
}

function takeTurn() {
  turnsLeft--
  turn?.()
  if (turnsLeft === 0 && turn) queueTurns()
}

export function createTime(): Time {
  let number = 0
  let stopped = false
  const heap: Event[] = []
  const before = (a: Event, b: Event) =>
    a.atMs !== b.atMs ? a.atMs < b.atMs : a.phase !== b.phase ? a.phase < b.phase : a.number < b.number

  function push(event: Event) {
    let i = heap.push(event) - 1
    while (i > 0) {
      const parent = (i - 1) >> 1
      if (!before(event, heap[parent]!)) break
      heap[i] = heap[parent]!
      i = parent
    }
    heap[i] = event
  }

  function pop(): Event {
    const first = heap[0]!
    const last = heap.pop()!
    if (heap.length === 0) return first
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child++
      if (!before(heap[child]!, last)) break
      heap[i] = heap[child]!
      i = child
    }
    heap[i] = last
    return first
  }

  /** Whether the event may have settled promises: the network and the servers have none. */
  function step(): boolean {
    const event = pop()
    const { owner, run } = event
    if (run === null || owner?.killed) return false
    if (owner && owner.pausedUntilMs > event.atMs) {
      event.atMs = owner.pausedUntilMs
      event.number = number++
      push(event)
      return false
    }
    time.nowMs = Math.max(time.nowMs, event.atMs)
    time.current = owner
    time.events++
    run()
    return owner !== null
  }

  const time: { -readonly [Name in keyof Time]: Time[Name] } = {
    nowMs: 0,
    current: null,
    events: 0,
    at(atMs, run, owner = time.current, phase = phases.messages) {
      const event: Event = { atMs: Math.max(atMs, time.nowMs), phase, number: number++, owner, run }
      push(event)
      return () => {
        event.run = null
      }
    },
    suspend(process, forMs) {
      process.pausedUntilMs = Math.max(process.pausedUntilMs, time.nowMs) + forMs
      process.stoodStillMs += forMs
      const waiting = heap.splice(0)
      for (const event of waiting) {
        if (event.owner === process && event.phase === phases.timers) event.atMs += forMs
        push(event)
      }
    },
    stop() {
      stopped = true
    },
    run: (untilMs) =>
      new Promise((resolve, reject) => {
        const isDue = () => !stopped && heap.length > 0 && heap[0]!.atMs <= untilMs
        // Node settles promises between two turns of its event loop.
        turn = () => {
          try {
            while (isDue()) if (step()) return
          } catch (error) {
            reject(error as Error)
          }
          turn = null
          if (!stopped) time.nowMs = Math.max(time.nowMs, untilMs)
          time.current = null
          resolve()
        }
        if (turnsLeft === 0) queueTurns()
      }),
  }
  return time
}

const promised = createRequire(import.meta.url)('node:timers/promises') as { setTimeout: unknown }

/** From now on every clock and timer of this real process is that of the running simulation. */
export function useTime(timeNow: () => Time): void {
  const clock = () => {
    const { nowMs, current } = timeNow()
    return 1_000_000 + (nowMs - (current?.stoodStillMs ?? 0)) * (current?.rate ?? 1)
  }
  const after = (ms: number, run: () => void, phase?: number) => {
    const time = timeNow()
    const atMs = time.nowMs + ms / (time.current?.rate ?? 1)
    const cancel = time.at(atMs, run, time.current, phase)
    const timer = { cancel, ref: () => timer, unref: () => timer, hasRef: () => true }
    return timer
  }
  type Timer = ReturnType<typeof after>
  const cancel = (timer?: Timer) => timer?.cancel()
  Object.assign(globalThis, {
    setTimeout: (run: (...args: unknown[]) => void, ms = 1, ...args: unknown[]) =>
      after(Math.max(1, ms), () => run(...args), phases.timers),
    setImmediate: (run: (...args: unknown[]) => void, ...args: unknown[]) =>
      after(0, () => run(...args), phases.immediates),
    clearTimeout: cancel,
    clearImmediate: cancel,
  })
  performance.now = clock
  Date.now = () => Math.floor(startMs + timeNow().nowMs + (timeNow().current?.clockMs ?? 0))
  promised.setTimeout = (ms: number, value: unknown, { signal }: { signal?: AbortSignal } = {}) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => resolve(value), ms) as unknown as Timer
      signal?.addEventListener('abort', () => {
        timer.cancel()
        reject(signal.reason)
      })
    })
  syncBuiltinESMExports()
}
