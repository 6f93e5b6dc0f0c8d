/** The audit log, for operators: newest first, narrowed by what they know. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { ApiError } from '../../../plugins/api-error.ts'
import { AuditList, ListAuditQuery } from '../../../schemas/audit.ts'
import { auditEvents } from '../../../schemas/bounds.ts'
import { limitOf, pageOf } from '../../http/routes/lists.ts'
import type { TokenFormat } from '../../rules/token.ts'
import type { AuditEntry, AuditLog, AuditPosition, KeyStore, UserStore } from '../../stores.ts'
import { laneOf, notFound } from './admin-rules.ts'

export interface AuditRoutesOptions {
  audit: AuditLog
  keys: Pick<KeyStore, 'get'>
  users: Pick<UserStore, 'get'>
  tokenFormat: Pick<TokenFormat, 'isIn'>
}

export const auditRoutes: FastifyPluginAsyncTypebox<AuditRoutesOptions> = async (app, options) => {
  const { audit, keys, users, tokenFormat } = options

  app.get(
    '/admin/audit',
    {
      schema: {
        operationId: 'listAuditEntries',
        summary: 'List the audit log',
        description: 'Newest first. The filters combine.',
        tags: ['Audit log'],
        querystring: ListAuditQuery,
        response: { 200: AuditList },
        errors: ['not_found'],
      },
    },
    async (request) => {
      const { request_id, key_id, user_id, reason, event, since, until, starting_after } = request.query
      const after = starting_after === undefined ? undefined : positionOf(starting_after)
      if (after === null) throw notFound('starting_after')
      const limit = limitOf(request.query)
      const filter = {
        requestId: request_id,
        keyId: key_id,
        userId: user_id,
        reason,
        event,
        since: since === undefined ? undefined : Number(since),
        until: until === undefined ? undefined : Number(until),
        limit: limit + 1,
        after,
      }
      // No entries would look as if nothing had happened.
      if (filter.since !== undefined && filter.until !== undefined && filter.since >= filter.until)
        throw new ApiError('invalid_parameter', {
          param: 'since',
          message: '`since` must be before `until`.',
          suggestion: 'Send an earlier `since`, or a later `until`.',
        })
      // No request id contains a key, and such a text must not be in a statement.
      if (request_id !== undefined && tokenFormat.isIn(request_id)) return pageOf([], limit, cursorOf)
      const lane = laneOf(request)
      const found = await audit.list(filter, lane)
      if (found.length === 0) {
        if (key_id !== undefined && !(await keys.get(key_id, null, lane))) throw notFound('key_id')
        if (user_id !== undefined && !(await users.get(user_id, lane))) throw notFound('user_id')
      }
      return pageOf(found, limit, cursorOf)
    },
  )
}

/**
 * An id alone would need an index of its own, on every refusal. With the event and the moment, the
 * primary key finds the entry.
 */
const cursorOf = ({ id, occurred_at, event }: AuditEntry) => `${id}.${Date.parse(occurred_at)}.${event}`

function positionOf(cursor: string): AuditPosition | null {
  const [, id, ms, name] = /^(aud_[0-9a-z]{1,100})\.([0-9]{1,15})\.(.*)$/.exec(cursor) ?? []
  const event = auditEvents.find((event) => event === name)
  return id === undefined || event === undefined ? null : { id, event, ms: Number(ms) }
}
