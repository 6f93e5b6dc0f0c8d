/** A user as it crosses the wire of the admin API. */
import { type Static, Type } from '@sinclair/typebox'
import { Moment, Name, nameMaxLength, namePattern } from './key.ts'
import { Limit, listOf, StartingAfter } from './list.ts'

const externalIdRules = {
  minLength: 1,
  maxLength: nameMaxLength,
  pattern: namePattern,
  description: 'What your own system calls this user. No two users have the same.',
  suggestion: `Send 1 to ${nameMaxLength} characters, not only blanks, without control characters or lone surrogates.`,
}
const ExternalId = Type.String(externalIdRules)
const ExternalIdOrNull = Type.Unsafe<string | null>({ ...externalIdRules, type: ['string', 'null'] })

export const CreateUserBody = Type.Object(
  { name: Name, external_id: Type.Optional(ExternalIdOrNull) },
  {
    $id: 'CreateUserBody',
    additionalProperties: false,
    suggestion: 'Send a JSON object with at least `name`.',
  },
)

export const PatchUserBody = Type.Object(
  { name: Type.Optional(Name), external_id: Type.Optional(ExternalIdOrNull) },
  {
    $id: 'PatchUserBody',
    additionalProperties: false,
    minProperties: 1,
    suggestion: 'Send a JSON object with at least one of `name` and `external_id`.',
  },
)

export const ListUsersQuery = Type.Object(
  {
    external_id: Type.Optional(ExternalId),
    limit: Type.Optional(Limit),
    starting_after: Type.Optional(StartingAfter),
  },
  { $id: 'ListUsersQuery', additionalProperties: false },
)

export const userMembers = {
  id: Type.String({ description: 'Begins with `usr_`.' }),
  name: Type.String(),
  external_id: Type.Unsafe<string | null>({ type: ['string', 'null'] }),
  created_at: Type.Integer({ description: 'Unix seconds.' }),
  deleted_at: Moment('Unix seconds of the deletion; null if not deleted.'),
}

export const User = Type.Object(userMembers, { $id: 'User', additionalProperties: false })
export type User = Static<typeof User>

export const UserList = listOf(userMembers, 'UserList')

export const RevokedKeys = Type.Object(
  { revoked: Type.Integer({ description: 'How many keys this request revoked.' }) },
  { $id: 'RevokedKeys', additionalProperties: false },
)
