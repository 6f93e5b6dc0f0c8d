/** What an operator learns about whatever a person who asks for help has sent. */
import { Type } from '@sinclair/typebox'
import { AuditEntry } from './audit.ts'
import { AdminKey, nameMaxLength, namePattern } from './key.ts'
import { User } from './user.ts'

export const LookupBody = Type.Object(
  {
    query: Type.String({
      minLength: 1,
      maxLength: nameMaxLength,
      pattern: namePattern,
      suggestion: 'Send a key, the beginning of a key, an id (`apk_`, `usr_` or `req_`), or an external id.',
    }),
  },
  { $id: 'LookupBody', additionalProperties: false },
)

export const Lookup = Type.Object(
  {
    type: Type.Unsafe<'key' | 'keys' | 'user' | 'request'>({ type: 'string' }),
    state: Type.Optional(
      Type.String({
        description: 'Of the key: active, revoked, expired or owner_deleted. Of the user: active or deleted.',
      }),
    ),
    key: Type.Optional(Type.Omit(AdminKey, [], { additionalProperties: false })),
    keys: Type.Optional(Type.Array(Type.Omit(AdminKey, [], { additionalProperties: false }))),
    user: Type.Optional(Type.Omit(User, [], { additionalProperties: false })),
    entries: Type.Optional(Type.Array(AuditEntry)),
    refusals: Type.Optional(Type.Array(AuditEntry)),
  },
  { $id: 'Lookup', additionalProperties: false },
)
