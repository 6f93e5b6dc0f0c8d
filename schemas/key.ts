/**
 * An API key as it crosses the wire (spec sections 2.1 and 4). Each member carries the suggestion
 * for an invalid value, so that the rule and the advice stay together.
 */
import { type Static, Type } from '@sinclair/typebox'

/** 2100-01-01T00:00:00Z. A later time is probably in the wrong unit. */
export const expiresAtEndS = 4_102_444_800
export const rateLimitMax = 1_000_000_000
export const nameMaxLength = 255
export const listLimitMax = 100

const nullable = { type: ['integer', 'null'] }

/** Unix seconds, or null if it has not happened. */
const Moment = (description: string) => Type.Unsafe<number | null>({ ...nullable, description })

/**
 * Not blank, no control character (Cc), no lone surrogate (Cs): text that fits into Postgres and a
 * log line. Needs the flag `u`.
 */
export const namePattern = '^[^\\p{Cc}\\p{Cs}]*[^\\p{Cc}\\p{Cs}\\s][^\\p{Cc}\\p{Cs}]*$'

const Name = Type.String({
  minLength: 1,
  maxLength: nameMaxLength,
  pattern: namePattern,
  description: 'A label for people, stored as sent.',
  suggestion: `Send 1 to ${nameMaxLength} characters, not only blanks, without control characters or lone surrogates.`,
})

const RateLimitRpm = Type.Integer({
  minimum: 1,
  maximum: rateLimitMax,
  description: 'Allowed requests per minute.',
  suggestion: `Send a whole number from 1 to ${rateLimitMax}, without quotes.`,
})

const ExpiresAt = Type.Unsafe<number | null>({
  ...nullable,
  minimum: 1,
  exclusiveMaximum: expiresAtEndS,
  description: 'Unix seconds from which the key is refused; null for no expiry.',
  suggestion:
    'Send a time in the future and before 2100 in whole Unix seconds, or null for a key that does not expire.',
})

export const CreateKeyBody = Type.Object(
  {
    name: Name,
    rate_limit_rpm: Type.Optional(RateLimitRpm),
    expires_at: Type.Optional(ExpiresAt),
  },
  {
    $id: 'CreateKeyBody',
    additionalProperties: false,
    suggestion: 'Send a JSON object with at least `name`.',
  },
)
export type CreateKeyBody = Static<typeof CreateKeyBody>

export const PatchKeyBody = Type.Object(
  {
    name: Type.Optional(Name),
    rate_limit_rpm: Type.Optional(RateLimitRpm),
    expires_at: Type.Optional(ExpiresAt),
  },
  {
    $id: 'PatchKeyBody',
    additionalProperties: false,
    minProperties: 1,
    suggestion: 'Send a JSON object with at least one of `name`, `rate_limit_rpm` and `expires_at`.',
  },
)
export type PatchKeyBody = Static<typeof PatchKeyBody>

export const KeyParams = Type.Object({ id: Type.String() })

export const keyStates = ['active', 'revoked', 'expired'] as const
export type KeyState = (typeof keyStates)[number]

export const ListKeysQuery = Type.Object(
  {
    limit: Type.Optional(
      Type.String({
        pattern: '^([1-9][0-9]?|100)$',
        description: 'Keys in one page.',
        suggestion: `Send a whole number from 1 to ${listLimitMax}, once.`,
      }),
    ),
    starting_after: Type.Optional(
      Type.String({
        description: 'The id of the last key on the previous page.',
        suggestion: 'Send one `apk_…` id: the `next_cursor` of the previous page.',
      }),
    ),
    status: Type.Optional(
      Type.Unsafe<KeyState>({
        type: 'string',
        enum: keyStates,
        description: 'Only keys in this state.',
        suggestion: `Send one of ${keyStates.join(', ')}, once.`,
      }),
    ),
  },
  { $id: 'ListKeysQuery', additionalProperties: false },
)
export type ListKeysQuery = Static<typeof ListKeysQuery>

const keyMembers = {
  id: Type.String({ description: 'Begins with `apk_`.' }),
  name: Type.String(),
  key_prefix: Type.String({ description: 'The first characters of the key, to recognise it by.' }),
  rate_limit_rpm: Type.Integer(),
  last_used_at: Moment('Unix seconds of the last use; null if never used.'),
  expires_at: Moment('Unix seconds from which the key is refused; null for never.'),
  created_at: Type.Integer({ description: 'Unix seconds.' }),
  revoked_at: Moment('Unix seconds of the revocation; null if not revoked.'),
}

export const Key = Type.Object(keyMembers, { $id: 'Key', additionalProperties: false })
export type Key = Static<typeof Key>

/** The only shape that contains the secret. Only the response to a creation has this schema. */
export const CreatedKey = Type.Object(
  { ...keyMembers, plain_key: Type.String({ description: 'The secret. Shown once, here.' }) },
  { $id: 'CreatedKey', additionalProperties: false },
)
export type CreatedKey = Static<typeof CreatedKey>

export const KeyList = Type.Object(
  {
    object: Type.Literal('list'),
    data: Type.Array(Type.Object(keyMembers, { additionalProperties: false })),
    has_more: Type.Boolean(),
    next_cursor: Type.Unsafe<string | null>({ type: ['string', 'null'] }),
  },
  { $id: 'KeyList', additionalProperties: false },
)
export type KeyList = Static<typeof KeyList>
