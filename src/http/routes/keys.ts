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
  listLimitMax,
  PatchKeyBody,
} from '../../../schemas/key.ts'
import type { LastUsed } from '../../guard/last-used.ts'
import type { MintKey } from '../../rules/new-key.ts'
import type { TokenFormat } from '../../rules/token.ts'
import {
  type CallerUnusable,
  type ExpiresInPast,
  type KeyStore,
  keyBody,
  type StoredKey,
} from '../../stores.ts'
import { actorOf } from './actor.ts'

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

  /**
   * Returns a function that turns a key into a response body, including uses that are not yet in
   * Postgres (this very request is one). Call it before reading the key.
   */
  const overlay = () => {
    const pendingOf = lastUsed.pending()
    return (key: StoredKey) => {
      const pending = pendingOf(key.id)
      return keyBody(pending === null ? key : { ...key, lastUsedAt: Math.max(pending, key.lastUsedAt ?? 0) })
    }
  }

  app.post(
    '/v1/keys',
    { schema: { body: CreateKeyBody, response: { 201: CreatedKey, ...errors } } },
    async (request, reply) => {
      const { name, rate_limit_rpm = defaultRateLimitRpm, expires_at = null } = request.body
      requireNoKeyIn(name)
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

  /** Names are stored, listed and audited, so they must not contain a key. */
  function requireNoKeyIn(name = '') {
    if (!tokenFormat.isIn(name)) return
    throw new ApiError('invalid_parameter', {
      param: 'name',
      message: '`name` contains an API key.',
      suggestion: 'Send a name without it: names are stored and shown. If that key is in use, revoke it.',
    })
  }

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
      const { limit: limitText, starting_after, status } = request.query
      const limit = limitText === undefined ? listLimitMax : Number(limitText)
      const page = { limit: limit + 1, startingAfter: starting_after, status }
      const toBody = overlay()
      const found = await keys.list(request.caller!.userId, page)
      if (found === null) throw notFound('starting_after')
      const data = found.slice(0, limit).map(toBody)
      const has_more = found.length > limit
      return { object: 'list' as const, data, has_more, next_cursor: has_more ? data.at(-1)!.id : null }
    },
  )

  app.get(
    '/v1/keys/:id',
    { schema: { params: KeyParams, response: { 200: Key, ...errors } } },
    async (request) => {
      const toBody = overlay()
      const key = await keys.get(request.params.id, request.caller!.userId)
      if (key === null) throw notFound()
      return toBody(key)
    },
  )

  app.patch(
    '/v1/keys/:id',
    { schema: { params: KeyParams, body: PatchKeyBody, response: { 200: Key, ...errors } } },
    async (request, reply) => {
      const { name, rate_limit_rpm, expires_at } = request.body
      requireNoKeyIn(name)
      const change = {
        ...(name !== undefined && { name }),
        ...(rate_limit_rpm !== undefined && { rateLimitRpm: rate_limit_rpm }),
        ...(expires_at !== undefined && { expiresAt: expires_at }),
      }
      const { id } = request.params
      const toBody = overlay()
      const changed = await keys.change(id, request.caller!.userId, change, actorOf(request, tokenFormat))
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
      const toBody = overlay()
      const revoked = await keys.revoke(request.params.id, request.caller!.userId, actor)
      if (!revoked.ok) throw revoked.reason === 'absent' ? notFound() : await refused(revoked, request, reply)
      return toBody(revoked.key)
    },
  )
}

const expiresInPast = ({ nowS }: ExpiresInPast) =>
  new ApiError('invalid_parameter', {
    param: 'expires_at',
    message: '`expires_at` is not in the future.',
    suggestion: `Send a later moment in whole Unix seconds; it is now ${Math.floor(nowS)}.`,
  })

/**
 * The body of a DELETE has no meaning (RFC 9110, 9.3.5). It is not read, so nothing about it can be
 * invalid.
 */
function ignoreBody({ raw }: FastifyRequest, _reply: FastifyReply, done: () => void) {
  for (const name of ['content-type', 'content-length', 'transfer-encoding']) delete raw.headers[name]
  done()
}
