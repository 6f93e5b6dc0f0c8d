/**
 * Stores how often each key was used: when a minute is over, one instance reads its counters and
 * stores them. Nothing is added to a request.
 *
 * Every instance looks every two seconds, and when a minute begins. The one that claims the minute
 * stores it; if it is killed, its claim ends and another one starts over, which is harmless: storing
 * again changes nothing. Each instance also reports how many requests it has counted. Where that is
 * more than what the counters held, requests were counted by an instance alone or lost with Redis, and
 * the minute is incomplete. If an instance was killed before it reported, the sum proves nothing: then
 * the minute is incomplete if any other instance has noticed that counts may be missing.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { minuteOf } from '../rules/window.ts'
import type { Counter, KeyCount, UsageReport, UsageStore } from '../stores.ts'

export interface CollectorOptions {
  counter: Pick<Counter, 'now' | 'scan' | 'takeHits' | 'mayLackCounts' | 'restore'>
  usage: Omit<UsageStore, 'read'>
  /** A minute is stored, but not all of its requests. */
  onIncomplete: (minute: number) => void
  /** This instance could not store these minutes, both included, before their counters might expire. */
  onSkipped: (first: number, last: number) => void
  /** Called with the reason when nothing can be stored, and with null when storing works again. */
  onFault: (error: Error | null) => void
  /** The same of rolling up. */
  onRollUpFault: (error: Error | null) => void
}

export interface Collector {
  /**
   * Checks every two seconds from now on, and when a minute begins. Resolves when this process is
   * reported for its first minute. Never rejects.
   */
  start(): Promise<void>
  /** Does what is due. Never rejects. */
  tick(): Promise<void>
  /** Seconds by which the next minute to be stored is late. */
  lagS(): number
  /** Seconds for which a roll-up has been due. */
  rollUpLagS(): number
  /** Stores what there is of this minute, within 5 s. Never rejects. */
  close(): Promise<void>
}

const tickMs = 2000
/** The clocks of a cluster's nodes may differ that much. */
const graceMs = 2000
/** Counts stored with one statement: about 20 ms. */
const storeMax = 5000
/** Of a core of each Redis server. 100,000 counters take about half a second of it. */
const share = 0.25
const stopTimeoutMs = 5000
/** As long as a claim lasts. */
const leaveMs = 15_000
/** Minutes whose report waits for Postgres: a day. */
const reportsMax = 1440

export function createCollector(options: CollectorOptions): Collector {
  const { counter, usage, onIncomplete, onSkipped, onFault, onRollUpFault } = options
  /** What is not reported yet, by minute. */
  const reports = new Map<number, Required<UsageReport>>()
  /** Minutes that were reported as begun, but not yet as ended. */
  const begun = new Set<number>()
  /** The last minute that is stored for good, as far as this instance knows. */
  let doneThrough: number | null = null
  /** Minutes in which an earlier process counted, and its counts died with it. */
  const lostMinutes = new Set<number>()
  /** A minute whose other requests this instance cannot see, and until when it is left to the others. */
  let left = { minute: 0, untilMs: 0 }
  let openMinute = 0
  /** The last minute in which nothing was left to roll up. */
  let rolledUpMinute: number | null = null
  let clock = { nowMs: 0, monoMs: 0 }
  let isClosed = false
  let timer: NodeJS.Timeout | undefined

  async function now(): Promise<number> {
    const nowMs = await counter.now()
    clock = { nowMs, monoMs: performance.now() }
    return nowMs
  }

  function add(minute: number, { requests, unreported, mayLackCounts }: Required<UsageReport>) {
    const known = reports.get(minute)
    reports.set(minute, {
      requests: requests + (known?.requests ?? 0),
      unreported: unreported + (known?.unreported ?? 0),
      mayLackCounts: mayLackCounts || (known?.mayLackCounts ?? false),
    })
  }

  /** Reports what was counted before this minute. */
  async function report(minute: number) {
    for (const one of [minute - 2, minute - 1]) {
      const requests = counter.takeHits(one)
      // What is stored for good cannot be lost any more.
      const mayLackCounts = one > doneThrough! && counter.mayLackCounts(one)
      const unreported = begun.delete(one) ? -1 : 0
      if (requests > 0 || mayLackCounts || unreported !== 0) add(one, { requests, unreported, mayLackCounts })
    }
    // After a standstill: some of its hits may be forgotten, so it stays unreported.
    for (const one of begun) {
      if (one >= minute - 2) continue
      begun.delete(one)
      add(one, { requests: counter.takeHits(one), unreported: 0, mayLackCounts: true })
    }
    for (const oldest of reports.keys()) {
      if (reports.size <= reportsMax) break
      reports.delete(oldest)
    }
    for (const [one, what] of reports) {
      await usage.report(one, what)
      reports.delete(one)
    }
  }

  /**
   * `whole`: every counter was read before any could expire. `isShared`: they are those of all
   * instances.
   */
  async function storeCounts(minute: number, signal?: AbortSignal) {
    let waiting = new Map<string, number>()
    const flush = async () => {
      const counts = [...waiting].map(([keyId, count]): KeyCount => ({ keyId, count }))
      waiting = new Map()
      if (counts.length > 0) await usage.store(minute, counts)
    }
    const visit = async (slice: KeyCount[]) => {
      // A scan may visit a counter twice.
      for (const { keyId, count } of slice) waiting.set(keyId, Math.max(count, waiting.get(keyId) ?? 0))
      if (waiting.size >= storeMax) await flush()
    }
    const { complete, mode } = await counter.scan(minute, visit, { share, signal })
    await flush()
    const isInTime = !mayHaveExpired(minute, await now())
    const whole = complete && mode !== 'local' && !lostMinutes.has(minute) && isInTime
    return { whole, isShared: mode === 'shared' }
  }

  /** Resolves to whether the minute is stored for good. */
  async function collect(minute: number): Promise<boolean> {
    if (minute === left.minute && clock.nowMs < left.untilMs) return false
    const claim = await usage.claim(minute)
    if (claim === 'claimed') {
      const { whole, isShared } = await storeCounts(minute)
      if (!lostMinutes.has(minute) && !mayHaveExpired(minute, clock.nowMs)) {
        // Another instance may reach Redis: it can have the minute at once. Counts in memory are whole, so
        // the minute is left only once: what is still missing then will not come.
        const leaves = !isShared && (!whole || minute !== left.minute)
        if (leaves && !(await usage.finish(minute, { whole, done: false }))) {
          left = { minute, untilMs: clock.nowMs + leaveMs }
          return false
        }
        // Once the claim has ended, an instance tries again.
        if (!whole) return false
      }
      if (!(await usage.finish(minute, { whole, done: true }))) onIncomplete(minute)
    }
    return claim !== 'taken'
  }

  /**
   * Reports that this process has begun to count in the current minute. If it is killed before the
   * report at the end, that shows.
   */
  const opening = oneAtATime(async () => {
    const nowMs = await now()
    const current = minuteOf(nowMs)
    // At first, or after the clock was ahead. The counters of a minute that ended over a minute ago
    // may already have expired.
    if (doneThrough === null || doneThrough >= current) doneThrough = current - 2
    if (rolledUpMinute === null || rolledUpMinute > current) rolledUpMinute = current - 1
    if (!begun.has(current)) {
      begun.add(current)
      add(current, { requests: 0, unreported: 1, mayLackCounts: false })
    }
    openMinute = current
    await report(current)
  })

  const storing = oneAtATime(async () => {
    await opening.run()
    const last = minuteOf(clock.nowMs - graceMs) - 1
    if (doneThrough! < last - 2) {
      onSkipped(doneThrough! + 1, last - 2)
      doneThrough = last - 2
    }
    for (const minute of [last - 1, last]) {
      if (minute <= doneThrough!) continue
      const isDone = await collect(minute)
      // Never skip a minute that another instance has claimed: that instance may be killed.
      if (isDone && (minute < last || doneThrough! >= last - 1)) doneThrough = minute
    }
  })

  /** Apart from storing: after a long fault, it takes longer than counters live. */
  const rollingUp = oneAtATime(async () => {
    await opening.run()
    const minute = openMinute
    if (rolledUpMinute === minute) return
    while (!isClosed && (await usage.rollUp((await counter.now()) / 1000))) {}
    rolledUpMinute = minute
  })

  const nowMs = () => clock.nowMs + performance.now() - clock.monoMs

  function lagS() {
    if (doneThrough === null) return 0
    return Math.max(0, nowMs() / 1000 - (doneThrough + 2) * 60)
  }

  function rollUpLagS() {
    if (rolledUpMinute === null) return 0
    return Math.max(0, nowMs() / 1000 - (rolledUpMinute + 1) * 60)
  }

  function onceEach(onChange: (error: Error | null) => void) {
    let isFaulty = false
    return (error: Error | null) => {
      if (isClosed || isFaulty === (error !== null)) return
      isFaulty = !isFaulty
      onChange(error)
    }
  }
  const noteStoring = onceEach(onFault)
  const noteRollUp = onceEach(onRollUpFault)

  async function tick() {
    const parts = [opening.run(), storing.run()]
    // At once: another part may wait for its deadline.
    for (const part of parts) part.catch(noteStoring)
    const rolledUp = rollingUp.run().then(() => noteRollUp(null), noteRollUp)
    const failed = (await Promise.allSettled(parts)).some(({ status }) => status === 'rejected')
    if (!failed && lagS() === 0) noteStoring(null)
    await rolledUp
  }

  /** A minute begins at once: if this process is killed before that is reported, nothing shows it. */
  function tickLater() {
    const leftMs = 60_000 - (nowMs() % 60_000)
    timer = setTimeout(
      () => {
        void tick()
        tickLater()
      },
      Math.min(tickMs, leftMs),
    )
    timer.unref()
  }

  /**
   * Where counts die with their process: continues from what the last one stored. The minute before is
   * only shown: nothing is stored of it any more.
   */
  async function restore() {
    if (counter.restore === undefined) return
    const minute = minuteOf(await now())
    doneThrough = minute - 1
    for (const one of [minute - 1, minute]) {
      const { counts, isCut } = await usage.resume(one)
      counter.restore(one, counts, isCut)
      if (isCut) lostMinutes.add(one)
    }
  }

  async function storeRest() {
    await Promise.all([opening.ended(), storing.ended()])
    const signal = AbortSignal.timeout(stopTimeoutMs)
    const minute = minuteOf(await now())
    await report(minute + 1)
    for (const one of [minute - 1, minute]) {
      if (one <= doneThrough!) continue
      const { whole } = await storeCounts(one, signal)
      await usage.finish(one, { whole, done: false })
    }
  }

  return {
    async start() {
      await restore().catch(onFault)
      await opening.run().catch(() => {})
      // Not awaited: a million counters in Redis take many seconds.
      void tick()
      tickLater()
    },
    tick,
    lagS,
    rollUpLagS,
    async close() {
      isClosed = true
      clearTimeout(timer)
      await Promise.race([storeRest().catch(onFault), pause(stopTimeoutMs, undefined, { ref: false })])
    },
  }
}

/** A call while the work is under way waits for that, and starts nothing. */
function oneAtATime(work: () => Promise<void>) {
  let underWay: Promise<void> | null = null
  return {
    run() {
      underWay ??= work().finally(() => {
        underWay = null
      })
      return underWay
    },
    ended: async () => underWay?.catch(() => {}),
  }
}

/** Whether counters of the minute may have expired: they outlive it by 60 s at least. */
const mayHaveExpired = (minute: number, nowMs: number) => minuteOf(nowMs) > minute + 1
