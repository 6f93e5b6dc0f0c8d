/** What the key routes of callers and those of operators have in common. */
import { ApiError } from '../../../plugins/api-error.ts'
import { KeyParams, PatchKeyBody, RotateKeyBody, withMaxRateLimit } from '../../../schemas/key.ts'
import type { LastUsed } from '../../guard/last-used.ts'
import type { TokenFormat } from '../../rules/token.ts'
import type { ExpiresInPast, KeyChange, NoMoreRotations, StoredKey } from '../../stores.ts'

/**
 * Returns a function that turns a key into a response body, including uses that are not yet in
 * Postgres (this very request may be one). Call it before reading the key.
 */
export function withPendingUses<B>(lastUsed: Pick<LastUsed, 'pending'>, bodyOf: (key: StoredKey) => B) {
  const pendingOf = lastUsed.pending()
  return (key: StoredKey): B => {
    const pending = pendingOf(key.id)
    return bodyOf(pending === null ? key : { ...key, lastUsedAt: Math.max(pending, key.lastUsedAt ?? 0) })
  }
}

/** Names are stored, listed and audited, so they must not contain a key. */
export function requireNoKeyIn(
  { isIn }: Pick<TokenFormat, 'isIn'>,
  texts: Record<string, string | null | undefined>,
): void {
  for (const [param, text] of Object.entries(texts)) {
    if (!text || !isIn(text)) continue
    throw new ApiError('invalid_parameter', {
      param,
      message: `\`${param}\` contains an API key.`,
      suggestion: 'Send a text without it: names are stored and shown. If that key is in use, revoke it.',
    })
  }
}

/** Only the members that the body has. */
export const keyChangeOf = (body: PatchKeyBody): KeyChange => ({
  ...(body.name !== undefined && { name: body.name }),
  ...(body.rate_limit_rpm !== undefined && { rateLimitRpm: body.rate_limit_rpm }),
  ...(body.expires_at !== undefined && { expiresAt: body.expires_at }),
})

export const expiresInPast = ({ nowS }: ExpiresInPast) =>
  new ApiError('invalid_parameter', {
    param: 'expires_at',
    message: '`expires_at` is not in the future.',
    suggestion: `Send a later moment in whole Unix seconds; it is now ${Math.floor(nowS)}.`,
  })

export const getOperation = {
  operationId: 'getKey',
  summary: 'Get a key',
  tags: ['Keys'],
  params: KeyParams,
} as const

export const updateOperation = (maxRateLimitRpm: number) =>
  ({
    operationId: 'updateKey',
    summary: 'Change a key',
    description: 'Once the response is sent, every instance acts on the change.',
    tags: ['Keys'],
    params: KeyParams,
    body: withMaxRateLimit(PatchKeyBody, maxRateLimitRpm),
    errors: ['key_not_active'],
  }) as const

export const rotateOperation = {
  operationId: 'rotateKey',
  summary: 'Rotate a key',
  description:
    'Creates a successor with the same owner, name, limit and expiry. The old key is revoked, or works for `expires_in` more seconds.',
  tags: ['Keys'],
  params: KeyParams,
  body: RotateKeyBody,
  sends: ['location'],
  errors: ['key_not_active', 'key_already_rotated', 'key_limit_reached'],
} as const

export const revokeOperation = {
  operationId: 'revokeKey',
  summary: 'Revoke a key',
  description:
    'Final. Once the response is sent, no instance accepts the key. A repeated DELETE changes nothing.',
  tags: ['Keys'],
  params: KeyParams,
} as const

export function noMoreRotations(failure: NoMoreRotations) {
  if (failure.reason === 'already_rotated') {
    const message = `The key has already been rotated: ${failure.successorId} replaced it.`
    return new ApiError('key_already_rotated', { param: 'id', message })
  }
  return new ApiError('key_limit_reached', {
    param: 'expires_in',
    message: 'The user has twice as many usable keys as allowed: too many rotated keys still work.',
    suggestion: 'Rotate without `expires_in`, or revoke rotated keys that are no longer in use.',
  })
}
