/**
 * When keys were last used: noted in memory, written to Postgres in one statement at most a second later. Best effort: what
 * could not be written is tried again with what came since; a killed process loses up to a second of it.
 */
import type { KeyStore } from '../stores.ts'

export interface LastUsed {
  note(keyId: string, atS: number): void
  /**
   * The last uses not known to be in Postgres now, Unix seconds. Asked for before a key is read from there: a use that is
   * written meanwhile, which the reading may have missed, is still told.
   */
  pending(): (keyId: string) => number | null
  /** Writes what is pending and stops. */
  close(): Promise<void>
}

const flushEveryMs = 500
const statementMax = 5000
/** Keys noted while Postgres is away; about 100 bytes each. Beyond it the uses of further keys are forgotten. */
const pendingMax = 200_000

export function createLastUsed(options: {
  keys: Pick<KeyStore, 'touch'>
  onBatch?: (size: number) => void
  /** Once for each change between being written and not. */
  onMode?: (written: boolean, reason: string) => void
}): LastUsed {
  const { keys, onBatch, onMode } = options
  let noted = new Map<string, number>()
  let writing = new Map<string, number>()
  let written = true
  let flushing: Promise<void> | null = null

  function note(keyId: string, atS: number) {
    const known = noted.get(keyId)
    if (known === undefined ? noted.size < pendingMax : known < atS) noted.set(keyId, atS)
  }

  function tell(now: boolean, reason: string) {
    if (now !== written) onMode?.(now, reason)
    written = now
  }

  async function flush() {
    // What comes while this is written waits for the next time: else each write would pick up the few of its own moment.
    const all = [...noted]
    noted = new Map()
    writing = new Map(all)
    try {
      for (let i = 0; i < all.length; i += statementMax) {
        const batch = new Map(all.slice(i, i + statementMax))
        onBatch?.(batch.size)
        await keys.touch(batch)
      }
      if (all.length > 0) tell(true, '')
    } catch (error) {
      tell(false, (error as Error).message)
      for (const [keyId, atS] of all) note(keyId, atS)
    } finally {
      writing = new Map()
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
      // A flush replaces these maps and leaves them as they are.
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
