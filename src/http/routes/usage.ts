/** GET /v1/keys/{id}/usage: how often a key of the caller was used. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { ApiError, notFound } from '../../../plugins/api-error.ts'
import { KeyParams } from '../../../schemas/key.ts'
import { Usage, UsageQuery } from '../../../schemas/usage.ts'
import type { KeyStore } from '../../stores.ts'
import type { UsageHistory } from '../../usage/history.ts'

export interface UsageRouteOptions {
  keys: Pick<KeyStore, 'get'>
  usageHistory: UsageHistory
}

export const usageOperation = {
  operationId: 'getKeyUsage',
  summary: 'Get the usage of a key',
  description: 'By minute, hour or day (UTC), the step under way included. At most 1,500 steps.',
  tags: ['Keys'],
  params: KeyParams,
  querystring: UsageQuery,
  response: { 200: Usage },
} as const

export const usageRoute: FastifyPluginAsyncTypebox<UsageRouteOptions> = async (app, options) => {
  const { keys, usageHistory } = options
  app.get('/v1/keys/:id/usage', { schema: usageOperation }, async (request) => {
    const { userId } = request.caller!
    const key = await keys.get(request.params.id, userId)
    if (key === null) throw notFound()
    return usageOrThrow(await usageHistory.read(key, request.query, userId))
  })
}

export function usageOrThrow(found: Awaited<ReturnType<UsageHistory['read']>>): Usage {
  if (found.ok) return found.usage
  throw new ApiError('invalid_parameter', found)
}
