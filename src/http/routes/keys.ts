/**
 * The operations on keys (docs/api.md). By the time they run, the caller is authenticated and counted.
 */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, notFound } from '../../../plugins/api-error.ts'
import {
  CreatedKey,
  CreateKeyBody,
  Key,
  KeyList,
  ListKeysQuery,
  withMaxRateLimit,
} from '../../../schemas/key.ts'
import type { LastUsed } from '../../guard/last-used.ts'
import type { MintKey } from '../../rules/new-key.ts'
import type { TokenFormat } from '../../rules/token.ts'
import { type CallerUnusable, type KeyStore, keyBody } from '../../stores.ts'
import { actorOf } from './actor.ts'
import { ignoreBody, optionalBody } from './bodies.ts'
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
} from './key-rules.ts'
import { limitOf, pageOf } from './lists.ts'

export interface KeyRoutesOptions {
  keys: KeyStore
  lastUsed: Pick<LastUsed, 'pending'>
  mintKey: MintKey
  tokenFormat: TokenFormat
  defaultRateLimitRpm: number
  maxRateLimitRpm: number
  /** The path of BASE_URL, without a trailing slash. */
  basePath: string
}

export const keyRoutes: FastifyPluginAsyncTypebox<KeyRoutesOptions> = async (app, options) => {
  const { keys, lastUsed, mintKey, tokenFormat, defaultRateLimitRpm, maxRateLimitRpm, basePath } = options

  app.post(
    '/v1/keys',
    {
      schema: {
        operationId: 'createKey',
        summary: 'Create a key',
        description: 'The new key belongs to the user of the key that authenticates the request.',
        tags: ['Keys'],
        body: withMaxRateLimit(CreateKeyBody, maxRateLimitRpm),
        response: { 201: CreatedKey },
        sends: ['location'],
        errors: ['key_limit_reached'],
      },
    },
    async (request, reply) => {
      const { name, rate_limit_rpm = defaultRateLimitRpm, expires_at = null } = request.body
      requireNoKeyIn(tokenFormat, { name })
      const { userId } = request.caller!
      const wanted = { userId, name, rateLimitRpm: rate_limit_rpm, expiresAt: expires_at }
      const { token, key } = mintKey(wanted)
      const created = await keys.create(key, actorOf(request, tokenFormat))
      if (!created.ok) {
        if (created.reason === 'caller_unusable') throw await refused(created, request, reply)
        throw created.reason === 'expires_in_past'
          ? expiresInPast(created)
          : new ApiError('key_limit_reached')
      }
      return reply
        .code(201)
        .header('location', `${basePath}/v1/keys/${created.key.id}`)
        .send({ ...keyBody(created.key), plain_key: token })
    },
  )

  /**
   * The caller's key became unusable while the request was in flight. Resolves to the error for the
   * same 401 that authentication sends.
   */
  function refused({ denial: reason }: CallerUnusable, request: FastifyRequest, reply: FastifyReply) {
    const { id: keyId, userId } = request.caller!
    return app.unauthorized({ ok: false, reason, keyId, userId }, request, reply)
  }

  app.get(
    '/v1/keys',
    {
      schema: {
        operationId: 'listKeys',
        summary: 'List keys',
        description: 'All keys of the user, newest first, including revoked and expired ones.',
        tags: ['Keys'],
        querystring: ListKeysQuery,
        response: { 200: KeyList },
        errors: ['not_found'],
      },
    },
    async (request) => {
      const { starting_after, status } = request.query
      const limit = limitOf(request.query)
      const page = { limit: limit + 1, startingAfter: starting_after, status }
      const toBody = withPendingUses(lastUsed, keyBody)
      const found = await keys.list(request.caller!.userId, page)
      if (found === null) throw notFound('starting_after')
      return pageOf(found.map(toBody), limit, ({ id }) => id)
    },
  )

  app.get('/v1/keys/:id', { schema: { ...getOperation, response: { 200: Key } } }, async (request) => {
    const toBody = withPendingUses(lastUsed, keyBody)
    const key = await keys.get(request.params.id, request.caller!.userId)
    if (key === null) throw notFound()
    return toBody(key)
  })

  app.patch(
    '/v1/keys/:id',
    { schema: { ...updateOperation(maxRateLimitRpm), response: { 200: Key } } },
    async (request, reply) => {
      requireNoKeyIn(tokenFormat, { name: request.body.name })
      const { id } = request.params
      const toBody = withPendingUses(lastUsed, keyBody)
      const changed = await keys.change(
        id,
        request.caller!.userId,
        keyChangeOf(request.body),
        actorOf(request, tokenFormat),
      )
      if (!changed.ok) {
        if (changed.reason === 'caller_unusable') throw await refused(changed, request, reply)
        if (changed.reason === 'expires_in_past') throw expiresInPast(changed)
        throw changed.reason === 'absent' ? notFound() : notActive()
      }
      return toBody(changed.key)
    },
  )

  app.post(
    '/v1/keys/:id/rotate',
    {
      schema: { ...rotateOperation, response: { 201: CreatedKey } },
      onRequest: optionalBody,
    },
    async (request, reply) => {
      const { token, key: successor } = mintKey({})
      const rotation = { successor, graceS: request.body.expires_in ?? 0 }
      const actor = actorOf(request, tokenFormat)
      const rotated = await keys.rotate(request.params.id, request.caller!.userId, rotation, actor)
      if (!rotated.ok) {
        if (rotated.reason === 'caller_unusable') throw await refused(rotated, request, reply)
        if (rotated.reason === 'absent') throw notFound()
        if (rotated.reason === 'not_active' || rotated.reason === 'owner_deleted') throw notActive()
        throw noMoreRotations(rotated)
      }
      return reply
        .code(201)
        .header('location', `${basePath}/v1/keys/${rotated.key.id}`)
        .send({ ...keyBody(rotated.key), plain_key: token })
    },
  )

  app.delete(
    '/v1/keys/:id',
    {
      schema: { ...revokeOperation, response: { 200: Key } },
      onRequest: ignoreBody,
    },
    async (request, reply) => {
      const actor = actorOf(request, tokenFormat)
      const toBody = withPendingUses(lastUsed, keyBody)
      const revoked = await keys.revoke(request.params.id, request.caller!.userId, actor)
      if (!revoked.ok) throw revoked.reason === 'absent' ? notFound() : await refused(revoked, request, reply)
      return toBody(revoked.key)
    },
  )
}

const notActive = () => new ApiError('key_not_active', { param: 'id' })
