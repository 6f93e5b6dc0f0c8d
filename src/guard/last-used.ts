/**
 * Records when keys were last used: in memory first, then in Postgres, in batches, at most a second
 * later. Best effort: a failed write is retried with the uses that have come since, and a killed
 * process or a crash of Postgres loses up to a second of them.
 *
 * A write also reads the keys that are to be read again. If one is still as the cached copy has it, the
 * copy is renewed, so a key used for the first time is not looked up twice.
 */
import type { KeyStore, KeyUse } from '../stores.ts'
import { type CachedKey, renew } from './key-cache.ts'

export interface LastUsed {
  note(key: CachedKey, atS: number): void
  /**
   * The last uses that may not be in Postgres yet, in Unix seconds. Call this before reading a key,
   * so that a use written during the read, which the read may miss, is still included.
   */
  pending(): (keyId: string) => number | null
  /** Writes what is pending and stops. */
  close(): Promise<void>
}

interface Use extends KeyUse {
  key: CachedKey
}

/** Not long, so that each write is small: a large one keeps a core of the database server busy. */
const flushAfterMs = 100
/**
 * Maximum number of keys in one statement. If there are more, each statement takes every nth key. Then
 * few of its rows share a page, even if the keys were created and are used one after the other, and
 * the page has room for their new versions. A version on another page costs an entry in every index.
 * When a statement ends, the space of the old versions is free again.
 */
const statementMax = 500
/**
 * Maximum number of keys to remember while Postgres is down, some 500 bytes each if they are no longer
 * cached. Beyond it, uses of further keys are dropped.
 */
const pendingMax = 200_000

export function createLastUsed(options: {
  keys: Pick<KeyStore, 'touch'>
  onBatch?: (size: number) => void
  /** Called when writes begin to fail, and with null when they succeed again. */
  onFault?: (error: Error | null) => void
}): LastUsed {
  const { keys, onBatch, onFault } = options
  let noted = new Map<string, Use>()
  let writing = new Map<string, Use>()
  let failing = false
  /** The last write has failed or has skipped a row, so someone may hold a lock for long. */
  let skipsLocked = false
  let flushing: Promise<void> | undefined
  /** Stays until its flush has ended. */
  let timer: NodeJS.Timeout | undefined
  let closed = false

  function note(key: CachedKey, atS: number) {
    const known = noted.get(key.id)
    if (known === undefined ? noted.size < pendingMax : known.atS < atS) noted.set(key.id, { key, atS })
    flushLater()
  }

  function report(error: Error | null) {
    if ((error !== null) !== failing) onFault?.(error)
    failing = error !== null
  }

  /** Resolves to the number of keys that were skipped. */
  async function write(batch: Use[]): Promise<number> {
    onBatch?.(batch.length)
    const beganMs = performance.now()
    const touched = await keys.touch(batch, { skipsLocked })
    for (const keyId of touched.confirmed) renew(writing.get(keyId)!.key, beganMs, touched)
    for (const keyId of touched.skipped) {
      const { key, atS } = writing.get(keyId)!
      note(key, atS)
    }
    return touched.skipped.length
  }

  async function flush() {
    // Uses that arrive during this write wait for the next flush. Otherwise one small statement
    // would follow another.
    writing = noted
    noted = new Map()
    const all = [...writing.values()]
    try {
      const statements = Math.ceil(all.length / statementMax)
      let skipped = 0
      for (let i = 0; i < statements; i++) {
        const batch: Use[] = []
        for (let place = i; place < all.length; place += statements) batch.push(all[place]!)
        skipped += await write(batch)
      }
      skipsLocked = skipped > 0
      report(null)
    } catch (error) {
      skipsLocked = true
      report(error as Error)
      for (const { key, atS } of all) note(key, atS)
    }
    writing = new Map()
  }

  function flushLater() {
    if (closed || noted.size === 0 || timer !== undefined) return
    timer = setTimeout(() => {
      flushing = flush().finally(() => {
        timer = undefined
        flushLater()
      })
    }, flushAfterMs).unref()
  }

  return {
    note,
    pending() {
      // A flush replaces these maps without emptying them.
      const [later, earlier] = [noted, writing]
      return (keyId) => {
        const atS = Math.max(later.get(keyId)?.atS ?? 0, earlier.get(keyId)?.atS ?? 0)
        return atS === 0 ? null : atS
      }
    },
    async close() {
      closed = true
      clearTimeout(timer)
      await flushing
      await flush()
    },
  }
}
