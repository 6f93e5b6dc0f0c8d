/** What a client knows of the service from its responses: the whole state of the oracle. */
export type Status = 'active' | 'revoked' | 'expired'

export interface ModelKey {
  readonly owner: number
  readonly id: string
  readonly token: string
  readonly createdAt: number
  name: string
  limit: number
  expiresAt: number | null
  revokedAt: number | null
  /** Requests in the minute that ends at this Unix second. */
  readonly counts: Map<number, number>
  /** The last admitted use on each instance, as far as its second is known. */
  readonly uses: Map<number, { fromS: number; toS: number }>
  /**
   * Of any request that may have been counted, even over the limit or refused when its key stopped
   * working meanwhile: whether that is a use is left open.
   */
  lastRequestS: number | null
}

export interface World {
  readonly users: readonly string[]
  /** In the order of creation; the first of each user is its root. */
  readonly keys: ModelKey[]
  /** Errors that must always be the same, whatever led to them, as they were first seen. */
  readonly uniform: Map<string, string>
}

/** `expires_at` is the second from which on the key is refused. Revocation outranks expiry. */
export function statusOf({ revokedAt, expiresAt }: ModelKey, nowS: number): Status {
  if (revokedAt !== null) return 'revoked'
  return expiresAt !== null && expiresAt <= nowS ? 'expired' : 'active'
}

export const ownedBy = ({ keys }: World, user: number) => keys.filter(({ owner }) => owner === user)

/** The Unix second at which the minute ends. */
export const resetAfter = (nowS: number) => (Math.floor(nowS / 60) + 1) * 60

export const newModelKey = (
  key: Pick<ModelKey, 'owner' | 'id' | 'token' | 'createdAt' | 'name' | 'limit' | 'expiresAt'>,
): ModelKey => ({ ...key, revokedAt: null, counts: new Map(), uses: new Map(), lastRequestS: null })
