/** The state of a key, and why it is denied. Pure: the time is an argument. */
import type { KeyState } from '../../schemas/bounds.ts'
import type { RefusalReason } from '../../schemas/refusal.ts'

/** Revocation outranks expiry. A key expires at the start of second `expiresAt`. */
export function keyState(
  key: { revokedAt: number | null; expiresAt: number | null },
  nowS: number,
): KeyState {
  if (key.revokedAt !== null) return 'revoked'
  return key.expiresAt !== null && key.expiresAt <= nowS ? 'expired' : 'active'
}

/**
 * Why a known key is denied, checked in this order: revoked, expired, owner deleted. Null if it is
 * usable.
 */
export function denialReason(
  key: { revokedAt: number | null; expiresAt: number | null; ownerDeleted: boolean },
  nowS: number,
): RefusalReason | null {
  const state = keyState(key, nowS)
  if (state !== 'active') return state
  return key.ownerDeleted ? 'owner_deleted' : null
}
