/** Keys of any user, for operators. The rules are those of the callers' own routes. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { ApiError } from '../../../plugins/api-error.ts'
import {
  AdminCreatedKey,
  AdminCreateKeyBody,
  AdminKey,
  AdminKeyList,
  AdminListKeysQuery,
  withMaxRateLimit,
} from '../../../schemas/key.ts'
import { actorOf } from '../../http/routes/actor.ts'
import { ignoreBody, optionalBody } from '../../http/routes/bodies.ts'
import {
  expiresInPast,
  getOperation,
  keyChangeOf,
  noMoreRotations,
  requireNoKeyIn,
  revokeOperation,
  rotateOperation,
  updateOperation,
  withPendingUses,
} from '../../http/routes/key-rules.ts'
import type { KeyRoutesOptions } from '../../http/routes/keys.ts'
import { limitOf, pageOf } from '../../http/routes/lists.ts'
import { idOrNone } from '../../rules/id.ts'
import type { TokenFormat } from '../../rules/token.ts'
import { adminKeyBody, type UserStore } from '../../stores.ts'
import { laneOf, notFound } from './admin-rules.ts'

export interface AdminKeyRoutesOptions extends Omit<KeyRoutesOptions, 'basePath'> {
  users: Pick<UserStore, 'get'>
}

export const adminKeyRoutes: FastifyPluginAsyncTypebox<AdminKeyRoutesOptions> = async (app, options) => {
  const { keys, users, lastUsed, mintKey, tokenFormat, defaultRateLimitRpm, maxRateLimitRpm } = options

  app.post(
    '/admin/keys',
    {
      schema: {
        operationId: 'createKey',
        summary: 'Create a key for a user',
        tags: ['Keys'],
        body: withMaxRateLimit(AdminCreateKeyBody, maxRateLimitRpm),
        response: { 201: AdminCreatedKey },
        sends: ['location'],
        errors: ['not_found', 'key_limit_reached'],
      },
    },
    async (request, reply) => {
      const { user_id: userId, name, rate_limit_rpm, expires_at = null } = request.body
      requireNoKeyIn(tokenFormat, { name })
      const rateLimitRpm = rate_limit_rpm ?? defaultRateLimitRpm
      const { token, key } = mintKey({ userId, name, rateLimitRpm, expiresAt: expires_at })
      const created = await keys.create(key, actorOf(request, tokenFormat))
      if (!created.ok) {
        if (created.reason === 'expires_in_past') throw expiresInPast(created)
        throw created.reason === 'no_such_user' ? notFound('user_id') : limitReached()
      }
      return reply
        .code(201)
        .header('location', `/admin/keys/${created.key.id}`)
        .send({ ...adminKeyBody(created.key), plain_key: token })
    },
  )

  app.get(
    '/admin/keys',
    {
      schema: {
        operationId: 'listKeys',
        summary: 'List keys of any user',
        description: 'Newest first.',
        tags: ['Keys'],
        querystring: AdminListKeysQuery,
        response: { 200: AdminKeyList },
        errors: ['not_found'],
      },
    },
    async (request) => {
      const { user_id, key_prefix, status, starting_after } = request.query
      if (key_prefix !== undefined && key_prefix.length !== tokenFormat.displayPrefixLength)
        throw wrongLength(tokenFormat)
      const limit = limitOf(request.query)
      const page = { limit: limit + 1, startingAfter: starting_after, status, displayPrefix: key_prefix }
      const toBody = withPendingUses(lastUsed, adminKeyBody)
      const lane = laneOf(request)
      const userId = user_id === undefined ? null : idOrNone('usr_', user_id)
      const found = await keys.list(userId, page, lane)
      if (found === null) throw notFound('starting_after')
      if (userId !== null && found.length === 0 && !(await users.get(userId, lane))) throw notFound('user_id')
      return pageOf(found.map(toBody), limit, ({ id }) => id)
    },
  )

  app.get(
    '/admin/keys/:id',
    { schema: { ...getOperation, response: { 200: AdminKey } } },
    async (request) => {
      const toBody = withPendingUses(lastUsed, adminKeyBody)
      const key = await keys.get(request.params.id, null, laneOf(request))
      if (key === null) throw notFound()
      return toBody(key)
    },
  )

  app.patch(
    '/admin/keys/:id',
    { schema: { ...updateOperation(maxRateLimitRpm), response: { 200: AdminKey } } },
    async (request) => {
      requireNoKeyIn(tokenFormat, { name: request.body.name })
      const { id } = request.params
      const toBody = withPendingUses(lastUsed, adminKeyBody)
      const changed = await keys.change(id, null, keyChangeOf(request.body), actorOf(request, tokenFormat))
      if (!changed.ok) {
        if (changed.reason === 'expires_in_past') throw expiresInPast(changed)
        throw changed.reason === 'absent' ? notFound() : notActive()
      }
      return toBody(changed.key)
    },
  )

  app.post(
    '/admin/keys/:id/rotate',
    {
      schema: { ...rotateOperation, response: { 201: AdminCreatedKey } },
      onRequest: optionalBody,
    },
    async (request, reply) => {
      const { token, key: successor } = mintKey({})
      const rotation = { successor, graceS: request.body.expires_in ?? 0 }
      const rotated = await keys.rotate(request.params.id, null, rotation, actorOf(request, tokenFormat))
      if (!rotated.ok) {
        // An operator has no key that could be unusable.
        if (rotated.reason === 'absent' || rotated.reason === 'caller_unusable') throw notFound()
        if (rotated.reason === 'owner_deleted') throw ownerDeleted()
        throw rotated.reason === 'not_active' ? notActive() : noMoreRotations(rotated)
      }
      return reply
        .code(201)
        .header('location', `/admin/keys/${rotated.key.id}`)
        .send({ ...adminKeyBody(rotated.key), plain_key: token })
    },
  )

  app.delete(
    '/admin/keys/:id',
    {
      schema: { ...revokeOperation, response: { 200: AdminKey } },
      onRequest: ignoreBody,
    },
    async (request) => {
      const toBody = withPendingUses(lastUsed, adminKeyBody)
      const revoked = await keys.revoke(request.params.id, null, actorOf(request, tokenFormat))
      if (!revoked.ok) throw notFound()
      return toBody(revoked.key)
    },
  )
}

const wrongLength = ({ displayPrefixLength }: TokenFormat) =>
  new ApiError('invalid_parameter', {
    param: 'key_prefix',
    message: '`key_prefix` has the wrong length.',
    suggestion: `Send the ${displayPrefixLength} characters of a \`key_prefix\`.`,
  })
const limitReached = () =>
  new ApiError('key_limit_reached', {
    param: 'user_id',
    suggestion: 'Revoke a key that is no longer needed with DELETE /admin/keys/{id}.',
  })
const ownerDeleted = () =>
  new ApiError('key_not_active', {
    param: 'id',
    message: 'The owner of the key is deleted, so the key cannot be rotated.',
    suggestion: 'Create a user with POST /admin/users, and a key for it with POST /admin/keys.',
  })
const notActive = () =>
  new ApiError('key_not_active', { param: 'id', suggestion: 'Create a new key with POST /admin/keys.' })
