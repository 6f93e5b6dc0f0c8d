/** What an operator learns about a key, prefix or id that a customer has sent. */
import { type Static, Type } from '@sinclair/typebox'
import { AuditEntry } from './audit.ts'
import { nameMaxLength, namePattern } from './bounds.ts'
import { KeyCounters } from './counters.ts'
import { AdminKey } from './key.ts'
import { User } from './user.ts'

export const LookupBody = Type.Object(
  {
    query: Type.String({
      minLength: 1,
      maxLength: nameMaxLength,
      pattern: namePattern,
      examples: ['usr_0mwpfal3g00000q7v0awobx4c0'],
      suggestion: 'Send a key, the beginning of a key, an id (`apk_`, `usr_` or `req_`), or an external id.',
    }),
  },
  { $id: 'LookupBody', additionalProperties: false },
)

export const Lookup = Type.Object(
  {
    type: Type.Unsafe<'key' | 'keys' | 'user' | 'request'>({
      type: 'string',
      enum: ['key', 'keys', 'user', 'request'],
    }),
    state: Type.Optional(
      Type.String({
        description: 'Of the key: active, revoked, expired or owner_deleted. Of the user: active or deleted.',
        examples: ['active'],
      }),
    ),
    key: Type.Optional(AdminKey),
    keys: Type.Optional(Type.Array(AdminKey)),
    user: Type.Optional(User),
    counters: Type.Optional(KeyCounters),
    entries: Type.Optional(Type.Array(AuditEntry)),
    refusals: Type.Optional(Type.Array(AuditEntry)),
  },
  { $id: 'Lookup', additionalProperties: false },
)
export type Lookup = Static<typeof Lookup>
