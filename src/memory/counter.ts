/** Counts in this process: for one instance with nothing installed. The same interface as the one on Redis. */
import { minuteOf } from '../rules/window.ts'
import type { Counter } from '../stores.ts'
import { createMinuteCounts } from './minute-counts.ts'

/** Longer than any copy of a key is believed. */
const versionTtlMs = 10 * 60_000
const pruneAbove = 10_000

export interface MemoryCounterOptions {
  /** Whether this process is the only one that caches keys. If not, it cannot tell the others of a change, and confirms none. */
  alone?: boolean
  now?: () => number
}

export function createMemoryCounter({ alone = true, now = Date.now }: MemoryCounterOptions = {}): Counter {
  const counts = createMinuteCounts()
  let lastMinute = -1
  const versions = new Map<string, { version: number; untilMs: number }>()

  function prune(nowMs: number) {
    for (const [keyId, { untilMs }] of versions) if (untilMs <= nowMs) versions.delete(keyId)
  }

  return {
    mode: 'memory',
    hit(keyId, onCounted) {
      const nowMs = now()
      const minute = minuteOf(nowMs)
      if (counts.full && minute === lastMinute) return false
      lastMinute = minute
      const number = counts.add(keyId, minute, 1)
      const turn = { nowMs, monoMs: performance.now(), shared: false }
      onCounted(number, versions.get(keyId)?.version ?? 0, turn)
      return true
    },
    async raise(raised) {
      const untilMs = now() + versionTtlMs
      if (versions.size > pruneAbove) prune(now())
      for (const { keyId, version } of raised) {
        const known = versions.get(keyId)?.version ?? 0
        versions.set(keyId, { version: Math.max(known, version), untilMs })
      }
      return alone
    },
    close: async () => {},
  }
}
