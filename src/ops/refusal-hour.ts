/**
 * The refusals of the last hour by reason, read in pieces of half a minute. A piece that cannot grow
 * any more is read once, so a flood of refusals is not counted again every second.
 */
import { type RefusalReason, refusalReasons } from '../../schemas/refusal.ts'
import type { AuditLog } from '../stores.ts'

export interface RefusalHour {
  /** From this moment on, Unix seconds: about an hour ago, or later while older pieces are read. */
  since: number
  reasons: Partial<Record<RefusalReason, number>>
}

interface Piece {
  refused: Map<string | null, number>
  isSettled: boolean
}

/** Postgres may take 0.9 s, and counted 360,000 refusals, 12,000 a second, in 0.3 s. */
const pieceS = 30
const piecesMax = 120
/** An entry is committed at most this long after its moment. */
const settledAfterMs = 10_000
/** Rests four times as long as it reads, so reading takes at most a fifth of the time. */
const restFactor = 4
const sliceMs = 300
/** More than there are reasons. */
const reasonsMax = 100

/** Returns the function that reads them. It rejects if Postgres cannot count the newest. */
export function createRefusalHour(audit: Pick<AuditLog, 'countRefusals' | 'now'>) {
  /** By the number of the piece, counted from 1970. */
  const pieces = new Map<number, Piece>()
  let restUntilMs = -Infinity

  async function read(piece: number, nowMs: number) {
    const isSettled = nowMs >= (piece + 1) * pieceS * 1000 + settledAfterMs
    const span = { since: piece * pieceS, until: (piece + 1) * pieceS, limit: reasonsMax }
    const counts = await audit.countRefusals('reason', span)
    pieces.set(piece, { refused: new Map(counts.map(({ value, refusals }) => [value, refusals])), isSettled })
  }

  /** Newest first. What takes long is continued the next time, and what fails is tried again. */
  async function refresh(startMs: number) {
    // The clock of the entries: that of this machine may differ.
    const nowMs = await audit.now()
    const newest = Math.floor(nowMs / 1000 / pieceS)
    for (const piece of pieces.keys()) if (piece <= newest - piecesMax) pieces.delete(piece)
    await read(newest, nowMs)
    for (let piece = newest - 1; piece > newest - piecesMax; piece--) {
      if (pieces.get(piece)?.isSettled) continue
      if (performance.now() - startMs > sliceMs) break
      try {
        await read(piece, nowMs)
      } catch {
        break
      }
    }
    restUntilMs = performance.now() + restFactor * (performance.now() - startMs)
  }

  return async (): Promise<RefusalHour> => {
    const startMs = performance.now()
    if (startMs >= restUntilMs) await refresh(startMs)
    const reasons: RefusalHour['reasons'] = {}
    let piece = Math.max(...pieces.keys())
    for (; pieces.has(piece); piece--) {
      for (const reason of refusalReasons) {
        const refused = pieces.get(piece)!.refused.get(reason) ?? 0
        if (refused > 0) reasons[reason] = (reasons[reason] ?? 0) + refused
      }
    }
    return { since: (piece + 1) * pieceS, reasons }
  }
}
