/** A user as it crosses the wire of the admin API. */
import { type Static, Type } from '@sinclair/typebox'
import { CreatedAt, labelRules, Moment, Name, UserId } from './key.ts'
import { Limit, listOf, StartingAfter } from './list.ts'

const externalIdRules = {
  ...labelRules,
  description: 'What your own system calls this user. No two users have the same.',
  examples: ['crm-7'],
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

export const UserParams = Type.Object({ id: UserId })

export const User = Type.Object(
  {
    id: UserId,
    name: Type.String({ examples: ['Ada'] }),
    external_id: Type.Unsafe<string | null>({ type: ['string', 'null'], examples: ['crm-7'] }),
    created_at: CreatedAt,
    deleted_at: Moment('Unix seconds of the deletion; null if not deleted.'),
  },
  { $id: 'User', additionalProperties: false },
)
export type User = Static<typeof User>

export const UserList = listOf(User, 'UserList')

export const RevokedKeys = Type.Object(
  { revoked: Type.Integer({ description: 'How many keys this request revoked.', examples: [3] }) },
  { $id: 'RevokedKeys', additionalProperties: false },
)
