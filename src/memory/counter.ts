/**
 * Counts in this process, for a single instance without Redis. It has the same interface as the
 * Redis counter.
 */
import { minuteOf } from '../rules/window.ts'
import type { Counter } from '../stores.ts'
import { createMinuteCounts, type MinuteCounts, visitCounts } from './minute-counts.ts'

/** Longer than any cached key is trusted. */
const versionTtlMs = 10 * 60_000
const pruneAbove = 10_000

export interface MemoryCounterOptions {
  /**
   * Whether this process is the only one that caches keys. If not, it cannot notify the others of a
   * change, so it confirms none.
   */
  alone?: boolean
  counts?: MinuteCounts
  now?: () => number
}

export function createMemoryCounter(options: MemoryCounterOptions = {}): Counter {
  const { alone = true, counts = createMinuteCounts(), now = Date.now } = options
  /** An earlier process ended in these minutes without storing what it had counted. */
  const cutMinutes = new Set<number>()
  const versions = new Map<string, { version: number; untilMonoMs: number }>()

  function prune(monoMs: number) {
    for (const [keyId, { untilMonoMs }] of versions) if (untilMonoMs <= monoMs) versions.delete(keyId)
  }

  /** 0 once no copy can be older: a restored database has lower versions, which would stay refused. */
  function versionOf(keyId: string, monoMs: number): number {
    const known = versions.get(keyId)
    return known !== undefined && monoMs < known.untilMonoMs ? known.version : 0
  }

  return {
    mode: () => 'memory',
    outages: () => [],
    hit(keyId, onCounted) {
      const nowMs = now()
      const number = counts.add(keyId, minuteOf(nowMs), 1)
      if (number < 1) return false
      const reply = { nowMs, monoMs: performance.now(), shared: false }
      onCounted(number, versionOf(keyId, reply.monoMs), reply)
      return true
    },
    async raise(raised) {
      const monoMs = performance.now()
      if (versions.size > pruneAbove) prune(monoMs)
      for (const { keyId, version } of raised)
        versions.set(keyId, {
          version: Math.max(versionOf(keyId, monoMs), version),
          untilMonoMs: monoMs + versionTtlMs,
        })
      return alone
    },
    confirm() {},
    async scan(minute, visit, { signal, above } = {}) {
      const scanned = await visitCounts(counts.of(minute), visit, { signal, above })
      return { complete: !signal?.aborted, scanned, mode: 'memory', fault: null }
    },
    async countsOf(keyIds, minutes) {
      const countOf = (keyId: string) => minutes.map((minute) => counts.of(minute).get(keyId) ?? 0)
      return { counts: keyIds.flatMap(countOf), mode: 'memory' }
    },
    known: counts.of,
    now: async () => now(),
    takeHits: counts.takeHits,
    mayLackCounts: (minute) => cutMinutes.has(minute),
    restore(minute, stored, isCut) {
      if (isCut) cutMinutes.add(minute)
      for (const { keyId, count } of stored) counts.add(keyId, minute, count)
      counts.takeHits(minute)
    },
    close: async () => {},
  }
}
