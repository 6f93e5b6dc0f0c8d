/**
 * An API key as it crosses the wire (docs/api.md). Each member carries the suggestion for an invalid
 * value, so that the rule and the advice stay together.
 */
import { type Static, type TObject, Type } from '@sinclair/typebox'
import {
  displayPrefixPattern,
  expiresAtEndS,
  graceMaxS,
  keyStates,
  nameMaxLength,
  namePattern,
  rateLimitMax,
} from './bounds.ts'
import { IdFilter, Limit, listOf, OneOf, StartingAfter } from './list.ts'

const nullable = { type: ['integer', 'null'] }

/** Unix seconds, or null if it has not happened. */
export const Moment = (description: string) => Type.Unsafe<number | null>({ ...nullable, description })

export const KeyId = Type.String({
  description: 'Begins with `apk_`.',
  examples: ['apk_0mwpfalq000000q7v0awobx4c0'],
})
export const UserId = Type.String({
  description: 'Begins with `usr_`.',
  examples: ['usr_0mwpfal3g00000q7v0awobx4c0'],
})
export const CreatedAt = Type.Integer({ description: 'Unix seconds.', examples: [1795205988] })

export const labelRules = {
  minLength: 1,
  maxLength: nameMaxLength,
  pattern: namePattern,
  suggestion: `Send 1 to ${nameMaxLength} characters, not only blanks, without control characters or lone surrogates.`,
}
export const Name = Type.String({
  ...labelRules,
  description: 'A label for people, stored as sent. It must not contain an API key.',
  examples: ['nightly export'],
})

const rateLimitUpTo = (maximum: number) => ({
  maximum,
  examples: [Math.min(60, maximum)],
  suggestion: `Send a whole number from 1 to ${maximum}, without quotes.`,
})
const RateLimitRpm = Type.Integer({
  minimum: 1,
  description: 'Allowed requests per minute.',
  ...rateLimitUpTo(rateLimitMax),
})

/** The body with the highest limit that the operator allows. */
export const withMaxRateLimit = <Body extends TObject>(body: Body, maxRateLimitRpm: number): Body => ({
  ...body,
  properties: {
    ...body.properties,
    rate_limit_rpm: { ...body.properties.rate_limit_rpm!, ...rateLimitUpTo(maxRateLimitRpm) },
  },
})

const ExpiresAt = Type.Unsafe<number | null>({
  ...nullable,
  minimum: 1,
  exclusiveMaximum: expiresAtEndS,
  description: 'Unix seconds from which the key is refused; null for no expiry.',
  examples: [2051222400],
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

export const RotateKeyBody = Type.Object(
  {
    expires_in: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: graceMaxS,
        examples: [3600],
        description:
          'Seconds for which the old key keeps working, unless it expires sooner; 0 revokes it at once.',
        suggestion: `Send whole seconds from 0 to ${graceMaxS}, or nothing to revoke the old key at once.`,
      }),
    ),
  },
  { $id: 'RotateKeyBody', additionalProperties: false },
)

export const KeyParams = Type.Object({ id: KeyId })

export const ListKeysQuery = Type.Object(
  {
    limit: Type.Optional(Limit),
    starting_after: Type.Optional(StartingAfter),
    status: Type.Optional(OneOf(keyStates, 'Only keys in this state.')),
  },
  { $id: 'ListKeysQuery', additionalProperties: false },
)

const keyMembers = {
  id: KeyId,
  name: Type.String({ examples: ['nightly export'] }),
  key_prefix: Type.String({
    description: 'The first characters of the key, to recognise it by.',
    examples: ['lk_6losLXU'],
  }),
  rate_limit_rpm: Type.Integer({ description: 'Allowed requests per minute.', examples: [60] }),
  last_used_at: Moment('Unix seconds of the last use; null if never used.'),
  expires_at: Moment('Unix seconds from which the key is refused; null for never.'),
  created_at: CreatedAt,
  revoked_at: Moment('Unix seconds of the revocation; null if not revoked.'),
}

export const Key = Type.Object(keyMembers, { $id: 'Key', additionalProperties: false })
export type Key = Static<typeof Key>

/** With the secret: for the responses of creations and rotations only, here and in AdminCreatedKey. */
export const CreatedKey = Type.Object(
  {
    ...keyMembers,
    plain_key: Type.String({
      description: 'The secret. Shown once, here.',
      examples: ['lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8'],
    }),
  },
  { $id: 'CreatedKey', additionalProperties: false },
)
export type CreatedKey = Static<typeof CreatedKey>

export const KeyList = listOf(Key, 'KeyList')
export type KeyList = Static<typeof KeyList>

// ---- the admin API: keys of any user ----

export const AdminCreateKeyBody = Type.Object(
  {
    user_id: Type.String({ ...UserId, suggestion: 'Send the id of a user.' }),
    ...CreateKeyBody.properties,
  },
  {
    $id: 'AdminCreateKeyBody',
    additionalProperties: false,
    suggestion: 'Send a JSON object with at least `user_id` and `name`.',
  },
)

const KeyPrefix = Type.String({
  pattern: displayPrefixPattern,
  description: 'Only keys with this `key_prefix`.',
  suggestion: 'Send the `key_prefix` of a key, once: its first characters, never a whole key.',
})

export const AdminListKeysQuery = Type.Object(
  {
    ...ListKeysQuery.properties,
    user_id: Type.Optional(IdFilter('usr_')),
    key_prefix: Type.Optional(KeyPrefix),
  },
  { $id: 'AdminListKeysQuery', additionalProperties: false },
)

export const AdminKey = Type.Object(
  { ...keyMembers, user_id: UserId },
  { $id: 'AdminKey', additionalProperties: false },
)
export type AdminKey = Static<typeof AdminKey>

export const AdminCreatedKey = Type.Object(
  { ...CreatedKey.properties, user_id: UserId },
  { $id: 'AdminCreatedKey', additionalProperties: false },
)

export const AdminKeyList = listOf(AdminKey, 'AdminKeyList')
