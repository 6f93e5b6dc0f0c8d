/**
 * Records when keys were last used: in memory first, then in Postgres, in batches, at most a second
 * later. Best effort: a failed write is retried with the uses that have come since, and a killed
 * process or a crash of Postgres loses up to a second of them.
 */
import type { KeyStore } from '../stores.ts'

export interface LastUsed {
  note(keyId: string, atS: number): void
  /**
   * The last uses that may not be in Postgres yet, in Unix seconds. Call this before reading a key,
   * so that a use written during the read, which the read may miss, is still included.
   */
  pending(): (keyId: string) => number | null
  /** Writes what is pending and stops. */
  close(): Promise<void>
}

/** Often, so that each write is small: a large one keeps a core of the database server busy. */
const flushEveryMs = 100
/**
 * Maximum number of keys in one statement. If there are more, each statement takes every nth key. Then
 * few of its rows share a page, even if the keys were created and are used one after the other, and
 * the page has room for their new versions. A version on another page costs an entry in every index.
 * When a statement ends, the space of the old versions is free again.
 */
const statementMax = 500
/**
 * Maximum number of keys to remember while Postgres is down, about 100 bytes each. Beyond it, uses
 * of further keys are dropped.
 */
const pendingMax = 200_000

export function createLastUsed(options: {
  keys: Pick<KeyStore, 'touch'>
  onBatch?: (size: number) => void
  /** Called when writes begin to fail and when they succeed again. */
  onMode?: (written: boolean, reason: string) => void
}): LastUsed {
  const { keys, onBatch, onMode } = options
  let noted = new Map<string, number>()
  let writing = new Map<string, number>()
  let written = true
  /** The last write has failed or has skipped a row, so someone may hold a lock for long. */
  let skipsLocked = false
  let flushing: Promise<void> | null = null

  function note(keyId: string, atS: number) {
    const known = noted.get(keyId)
    if (known === undefined ? noted.size < pendingMax : known < atS) noted.set(keyId, atS)
  }

  function report(isWritten: boolean, reason: string) {
    if (isWritten !== written) onMode?.(isWritten, reason)
    written = isWritten
  }

  async function flush() {
    // Uses that arrive during this write wait for the next flush. Otherwise one small statement
    // would follow another.
    writing = noted
    noted = new Map()
    const all = [...writing]
    try {
      const statements = Math.ceil(all.length / statementMax)
      let skipped = 0
      for (let i = 0; i < statements; i++) {
        const batch = new Map<string, number>()
        for (let place = i; place < all.length; place += statements) batch.set(...all[place]!)
        onBatch?.(batch.size)
        for (const keyId of await keys.touch(batch, { skipsLocked })) {
          note(keyId, batch.get(keyId)!)
          skipped++
        }
      }
      skipsLocked = skipped > 0
      report(true, '')
    } catch (error) {
      skipsLocked = true
      report(false, (error as Error).message)
      for (const [keyId, atS] of all) note(keyId, atS)
    }
  }

  const timer = setInterval(() => {
    flushing ??= flush().finally(() => {
      flushing = null
    })
  }, flushEveryMs)
  timer.unref()

  return {
    note,
    pending() {
      // A flush replaces these maps without emptying them.
      const [later, earlier] = [noted, writing]
      return (keyId) => {
        const atS = Math.max(later.get(keyId) ?? 0, earlier.get(keyId) ?? 0)
        return atS === 0 ? null : atS
      }
    },
    async close() {
      clearInterval(timer)
      await flushing
      await flush()
    },
  }
}
