/**
 * The five operations on keys (spec section 4). By the time they run, the caller is authenticated
 * and counted.
 */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, notFound } from '../../../plugins/api-error.ts'
import { ErrorEnvelope } from '../../../schemas/error.ts'
import {
  CreatedKey,
  CreateKeyBody,
  Key,
  KeyList,
  KeyParams,
  ListKeysQuery,
  PatchKeyBody,
} from '../../../schemas/key.ts'
import type { LastUsed } from '../../guard/last-used.ts'
import type { MintKey } from '../../rules/new-key.ts'
import type { TokenFormat } from '../../rules/token.ts'
import { type CallerUnusable, type KeyStore, keyBody, type StoredKey } from '../../stores.ts'
import { actorOf } from './actor.ts'
import {
  expiresInPast,
  ignoreBody,
  keyChangeOf,
  limitOf,
  pageOf,
  pendingUses,
  requireNoKeyIn,
} from './key-rules.ts'

export interface KeyRoutesOptions {
  keys: KeyStore
  lastUsed: Pick<LastUsed, 'pending'>
  mintKey: MintKey
  tokenFormat: TokenFormat
  defaultRateLimitRpm: number
}

const errors = { '4xx': ErrorEnvelope, '5xx': ErrorEnvelope }

export const keyRoutes: FastifyPluginAsyncTypebox<KeyRoutesOptions> = async (app, options) => {
  const { keys, lastUsed, mintKey, tokenFormat, defaultRateLimitRpm } = options

  /** Call it before reading the key: see `pendingUses`. */
  const toBodies = () => {
    const withUses = pendingUses(lastUsed)
    return (key: StoredKey) => keyBody(withUses(key))
  }

  app.post(
    '/v1/keys',
    { schema: { body: CreateKeyBody, response: { 201: CreatedKey, ...errors } } },
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
        .header('location', `/v1/keys/${created.key.id}`)
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
    { schema: { querystring: ListKeysQuery, response: { 200: KeyList, ...errors } } },
    async (request) => {
      const { starting_after, status } = request.query
      const limit = limitOf(request.query)
      const page = { limit: limit + 1, startingAfter: starting_after, status }
      const toBody = toBodies()
      const found = await keys.list(request.caller!.userId, page)
      if (found === null) throw notFound('starting_after')
      return pageOf(found.map(toBody), limit, ({ id }) => id)
    },
  )

  app.get(
    '/v1/keys/:id',
    { schema: { params: KeyParams, response: { 200: Key, ...errors } } },
    async (request) => {
      const toBody = toBodies()
      const key = await keys.get(request.params.id, request.caller!.userId)
      if (key === null) throw notFound()
      return toBody(key)
    },
  )

  app.patch(
    '/v1/keys/:id',
    { schema: { params: KeyParams, body: PatchKeyBody, response: { 200: Key, ...errors } } },
    async (request, reply) => {
      requireNoKeyIn(tokenFormat, { name: request.body.name })
      const { id } = request.params
      const toBody = toBodies()
      const changed = await keys.change(
        id,
        request.caller!.userId,
        keyChangeOf(request.body),
        actorOf(request, tokenFormat),
      )
      if (!changed.ok) {
        if (changed.reason === 'caller_unusable') throw await refused(changed, request, reply)
        if (changed.reason === 'expires_in_past') throw expiresInPast(changed)
        throw changed.reason === 'absent' ? notFound() : new ApiError('key_not_active', { param: 'id' })
      }
      return toBody(changed.key)
    },
  )

  app.delete(
    '/v1/keys/:id',
    { schema: { params: KeyParams, response: { 200: Key, ...errors } }, onRequest: ignoreBody },
    async (request, reply) => {
      const actor = actorOf(request, tokenFormat)
      const toBody = toBodies()
      const revoked = await keys.revoke(request.params.id, request.caller!.userId, actor)
      if (!revoked.ok) throw revoked.reason === 'absent' ? notFound() : await refused(revoked, request, reply)
      return toBody(revoked.key)
    },
  )
}
