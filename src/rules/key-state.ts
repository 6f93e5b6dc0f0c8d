/** What state a key is in, and why it may not be used (spec sections 3 and 5). Pure: the time is given. */
import type { KeyState } from '../../schemas/key.ts'
import type { RefusalReason } from '../../schemas/refusal.ts'

/** Revocation outranks expiry. A key is refused from the second `expiresAt` on. */
export function keyState(
  key: { revokedAt: number | null; expiresAt: number | null },
  nowS: number,
): KeyState {
  if (key.revokedAt !== null) return 'revoked'
  return key.expiresAt !== null && key.expiresAt <= nowS ? 'expired' : 'active'
}

/** The reason to refuse a known key, in this order: revoked, expired, owner deleted; null if usable. */
export function denialReason(
  key: { revokedAt: number | null; expiresAt: number | null; ownerDeleted: boolean },
  nowS: number,
): RefusalReason | null {
  const state = keyState(key, nowS)
  if (state !== 'active') return state
  return key.ownerDeleted ? 'owner_deleted' : null
}
