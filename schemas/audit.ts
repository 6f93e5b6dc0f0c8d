/**
 * An entry of the audit log as it crosses the wire of the admin API; `latchkey audit --json` prints
 * the same.
 */
import { type Static, Type } from '@sinclair/typebox'
import { type AuditReason, auditEvents, auditReasons, requestIdPattern } from './bounds.ts'
import { Enum } from './enum.ts'
import { IdFilter, Limit, listOf, OneOf, StartingAfter, UnixSeconds } from './list.ts'

export const ListAuditQuery = Type.Object(
  {
    request_id: Type.Optional(
      Type.String({
        pattern: requestIdPattern,
        suggestion: "Send one request id, as in a response's `x-request-id`.",
      }),
    ),
    key_id: Type.Optional(IdFilter('apk_')),
    user_id: Type.Optional(IdFilter('usr_')),
    reason: Type.Optional(OneOf(auditReasons)),
    event: Type.Optional(OneOf(auditEvents)),
    since: Type.Optional(UnixSeconds('Unix seconds: only entries from then on.')),
    until: Type.Optional(UnixSeconds('Unix seconds: only entries before.')),
    limit: Type.Optional(Limit),
    starting_after: Type.Optional(StartingAfter),
  },
  { $id: 'ListAuditQuery', additionalProperties: false },
)

const textOrNull = Type.Unsafe<string | null>({ type: ['string', 'null'] })

const auditMembers = {
  id: Type.String({ description: 'Begins with `aud_`.', examples: ['aud_0mwpfiltg0000056vp5cg366jr'] }),
  occurred_at: Type.String({
    description: 'ISO 8601 with milliseconds, UTC.',
    examples: ['2026-11-20T20:26:01.594Z'],
  }),
  request_id: Type.String({ examples: ['req_0mwpfiltf0000056vp5cg366jr'] }),
  event: Enum(auditEvents),
  reason: Type.Unsafe<AuditReason | null>({ type: ['string', 'null'], enum: [...auditReasons, null] }),
  key_id: textOrNull,
  user_id: textOrNull,
  actor: Type.Unsafe<string | null>({
    type: ['string', 'null'],
    description:
      'Who made a change: `key:apk_…`, `operator:<name>`, `cli:<os user>` or `partner:github`; null for refusals.',
  }),
  method: textOrNull,
  path: textOrNull,
  ip: textOrNull,
  user_agent: textOrNull,
  details: Type.Unsafe<Record<string, unknown> | null>({
    type: ['object', 'null'],
    additionalProperties: true,
  }),
}

export const AuditEntry = Type.Object(auditMembers, { $id: 'AuditEntry', additionalProperties: false })
export type AuditEntry = Static<typeof AuditEntry>

export const AuditList = listOf(AuditEntry, 'AuditList')
