/**
 * The busiest keys of this and the last minute, shared by all viewers: one scan of the counters. It
 * runs only while someone asks, and never twice at once.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { minuteOf } from '../rules/window.ts'
import {
  type Counter,
  type InstanceStore,
  type KeyCount,
  type Operator,
  type Scan,
  Unavailable,
} from '../stores.ts'
import { isAlive } from './fleet.ts'
import { candidatesMax, type Finalists, type Ranking, type RankingOptions, rankKeys } from './rank-keys.ts'
import { createTopCounts, type TopCounts } from './top-counts.ts'

export type WhichMinute = 'current' | 'last'

export interface Board {
  /** Rejects only on a bug of ours, never because a server is down. */
  read(which: WhichMinute, lane: Operator): Promise<BoardView>
  /** Ends the scan. */
  close(): void
}

export interface BoardView extends Scan, Ranking {
  minute: number
  /** When the scan behind this began, by the counting clock. No count is older. */
  asOfMs: number
  /** Requests of the minute may be missing, so counts are lower bounds. */
  lost: boolean
}

interface BoardOptions extends RankingOptions {
  counter: Pick<Counter, 'mode' | 'scan' | 'known' | 'countsOf' | 'mayLackCounts' | 'now'>
  instances: Pick<InstanceStore, 'list'>
}

/** A result this old is read again when somebody asks. The dashboard asks every second. */
const freshMs = 900
/** The same for a minute that is over and read: only names and limits can still change. */
const finalFreshMs = 10_000
/** And for one that is over and not read yet. */
const unreadFreshMs = 5000
/** A scan that takes longer than this answers with what it has so far. */
const patienceMs = 500
/** Nobody has asked for this long: the scan ends. */
const idleMs = 5000
/**
 * Of a core of each Redis server: what a scan may use while this instance has nothing to do. Its
 * connections and its housekeeping come on top, up to 5 % in all.
 */
export const shareMax = 0.04
/**
 * And while it is busy: then the scan would slow down requests. What the callers of this instance
 * use is known without it.
 */
const shareMin = 0.0025
/** Utilization of the event loop, 0 to 1, from which on the instance is busy. */
const busyFrom = 0.05

/** Of the counts that this instance knows, how many to look at each time: about 0.2 ms. */
const knownMax = 1000

interface Minute {
  readonly minute: number
  readonly top: TopCounts
  /** Goes through the known counts, some at each read. */
  known: Iterator<[string, number]>
  readonly finalists: Finalists
  /** The last scan that ended. */
  done: (Scan & { startedMs: number; endedMonoMs: number }) | null
  /** The one under way, or waiting for that of the other minute. */
  scanning: Promise<void> | null
  startedMs: number
  scanned: number
  /** Another instance has counted by itself. */
  lostElsewhere: boolean
  /** Ends the scan. */
  stop: AbortController
}

/** The busier this instance was since the last call, the smaller the share. */
function spareShare() {
  let last = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, last)
    last = now
    return shareMin + (shareMax - shareMin) * Math.max(0, 1 - utilization / busyFrom)
  }
}

export function createBoard({ counter, keys, instances }: BoardOptions): Board {
  const minutes = new Map<number, Minute>()
  const views = new Map<string, { untilMs: number; view: Promise<BoardView> }>()
  let isIdle = false
  let lastScan: Promise<void> = Promise.resolve()
  const idle = setTimeout(stopAll, idleMs)
  idle.unref()

  function stopAll() {
    isIdle = true
    for (const { stop } of minutes.values()) stop.abort()
  }

  /**
   * Drops minutes that can no longer be asked for. Ends scans of a minute that is over if they began
   * before its end: their counts are not final, and the next scan is waiting.
   */
  function endMinutes(now: number) {
    for (const [minute, { startedMs, stop }] of minutes) {
      if (minute < now - 1) minutes.delete(minute)
      if (minute < now - 1 || (minute < now && minuteOf(startedMs) <= minute)) stop.abort()
    }
  }

  /** The entry of this minute, created if missing. */
  function minuteAt(minute: number, nowMs: number): Minute {
    endMinutes(minuteOf(nowMs))
    let found = minutes.get(minute)
    if (found === undefined) {
      const top = createTopCounts(candidatesMax)
      const finalists = { keyIds: [], monoMs: -Infinity }
      const known = counter.known(minute).entries()
      const scan = { done: null, scanning: null, startedMs: nowMs, scanned: 0, stop: new AbortController() }
      found = { minute, top, known, finalists, lostElsewhere: false, ...scan }
      minutes.set(minute, found)
    }
    return found
  }

  async function scan(entry: Minute) {
    if (isIdle || minutes.get(entry.minute) !== entry) return
    entry.stop = new AbortController()
    const { signal } = entry.stop
    entry.startedMs = await counter.now()
    entry.scanned = 0
    const visit = (slice: KeyCount[], read: number) => {
      entry.scanned += read
      entry.top.add(slice)
    }
    const done = await counter.scan(entry.minute, visit, {
      signal,
      above: entry.top.floor,
      share: spareShare(),
    })
    entry.done = { ...done, startedMs: entry.startedMs, endedMonoMs: performance.now() }
  }

  /** Whether another instance has counted by itself in this minute. False if Postgres does not answer. */
  async function isCountedElsewhere(minute: number, nowMs: number, lane: Operator): Promise<boolean> {
    try {
      const passedS = nowMs / 1000 - minute * 60
      const listed = await instances.list(lane)
      return listed.some((one) => isAlive(one) && one.silentS < passedS && one.counting === 'local')
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      return false
    }
  }

  /** Costs Redis nothing: the busiest keys of a busy instance need not wait until they are scanned. */
  function addKnown(entry: Minute) {
    const slice: KeyCount[] = []
    while (slice.length < knownMax) {
      const next = entry.known.next()
      if (next.done) {
        entry.known = counter.known(entry.minute).entries()
        break
      }
      const [keyId, count] = next.value
      slice.push({ keyId, count })
    }
    entry.top.add(slice)
  }

  /** The last scan, unless it began before the end of a minute that is now over. */
  const usable = ({ minute, done }: Minute, isCurrent: boolean) =>
    done !== null && (isCurrent || minuteOf(done.startedMs) > minute) ? done : null

  /** Waits for a scan that is not too old, or for what a longer one has found so far. */
  async function refresh(entry: Minute, isCurrent: boolean) {
    const done = usable(entry, isCurrent)
    if (done?.complete && !isCurrent) return
    if (done !== null && performance.now() - done.endedMonoMs < freshMs) return
    if (entry.scanning === null) {
      entry.scanning = lastScan.then(() => scan(entry))
      lastScan = entry.scanning.finally(() => {
        entry.scanning = null
      })
    }
    await Promise.race([entry.scanning, pause(patienceMs)])
  }

  async function look(entry: Minute, nowMs: number, lane: Operator): Promise<BoardView> {
    const isCurrent = entry.minute === minuteOf(nowMs)
    await refresh(entry, isCurrent)
    addKnown(entry)
    const [ranking, isElsewhere] = await Promise.all([
      rankKeys({ counter, keys }, { ...entry, isRising: isCurrent, lane }),
      isCurrent && isCountedElsewhere(entry.minute, nowMs, lane),
    ])
    const unfinished = { ...entry, complete: false, mode: counter.mode(), fault: null }
    const { startedMs, complete, scanned, mode, fault } = usable(entry, isCurrent) ?? unfinished
    entry.lostElsewhere ||= isElsewhere
    const lost = counter.mayLackCounts(entry.minute) || entry.lostElsewhere
    return { minute: entry.minute, asOfMs: startedMs, complete, scanned, mode, fault, lost, ...ranking }
  }

  return {
    async read(which, lane) {
      idle.refresh()
      isIdle = false
      const nowMs = await counter.now()
      const isCurrent = which === 'current'
      const entry = minuteAt(minuteOf(nowMs) - (isCurrent ? 0 : 1), nowMs)
      const monoMs = performance.now()
      for (const [name, { untilMs }] of views) if (monoMs >= untilMs) views.delete(name)
      const name = `${which} ${entry.minute}`
      const seen = views.get(name)
      if (seen) return seen.view
      const view = look(entry, nowMs, lane)
      const made = { untilMs: monoMs + freshMs, view }
      views.set(name, made)
      const { complete, named } = await view
      if (named && !isCurrent) made.untilMs = monoMs + (complete ? finalFreshMs : unreadFreshMs)
      return view
    },
    close() {
      clearTimeout(idle)
      stopAll()
    },
  }
}
