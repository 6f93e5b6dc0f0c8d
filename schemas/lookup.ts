/** What an operator learns about a key, prefix or id that a customer has sent. */
import { type Static, type TProperties, Type } from '@sinclair/typebox'
import { AuditEntry } from './audit.ts'
import { lookupMaxLength, lookupPattern, operatorKeyStates } from './bounds.ts'
import { KeyCounters } from './counters.ts'
import { Enum } from './enum.ts'
import { AdminKey } from './key.ts'
import { User } from './user.ts'

export const LookupBody = Type.Object(
  {
    query: Type.String({
      minLength: 1,
      maxLength: lookupMaxLength,
      pattern: lookupPattern,
      examples: ['usr_0mwpfal3g00000q7v0awobx4c0'],
      suggestion: 'Send a key, the beginning of a key, an id (`apk_`, `usr_` or `req_`), or an external id.',
    }),
  },
  { $id: 'LookupBody', additionalProperties: false },
)

const keyState = Enum(operatorKeyStates)

/** One kind of answer: `type` says which, and so which members there are. */
const found = <T extends string, P extends TProperties>($id: string, type: T, properties: P) =>
  Type.Object({ type: Type.Literal(type), ...properties }, { $id, additionalProperties: false })

export const Lookup = Type.Union(
  [
    found('FoundKey', 'key', {
      state: keyState,
      key: AdminKey,
      user: User,
      // Without them if another process counts in memory.
      counters: Type.Optional(KeyCounters),
      refusals: Type.Array(AuditEntry),
    }),
    found('FoundKeys', 'keys', { keys: Type.Array(AdminKey) }),
    found('FoundUser', 'user', {
      state: Enum(['active', 'deleted']),
      user: User,
      refusals: Type.Array(AuditEntry),
    }),
    found('FoundRequest', 'request', {
      state: Type.Optional(keyState),
      key: Type.Optional(AdminKey),
      user: Type.Optional(User),
      entries: Type.Array(AuditEntry),
      has_more: Type.Boolean({ description: 'Whether the audit log has more entries of it.' }),
    }),
  ],
  { $id: 'Lookup' },
)
export type Lookup = Static<typeof Lookup>
