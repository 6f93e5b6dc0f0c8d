/** GET /admin/keys/{id}/usage: how often any key was used. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { KeyParams } from '../../../schemas/key.ts'
import { Usage, UsageQuery } from '../../../schemas/usage.ts'
import { type UsageRouteOptions, usageOrThrow } from '../../http/routes/usage.ts'
import { laneOf, notFound } from './admin-rules.ts'

export const adminUsageRoute: FastifyPluginAsyncTypebox<UsageRouteOptions> = async (app, options) => {
  const { keys, usageHistory } = options
  app.get(
    '/admin/keys/:id/usage',
    {
      schema: {
        operationId: 'getKeyUsage',
        summary: 'Get the usage of any key',
        description: 'By minute, hour or day (UTC), the step under way included. At most 1,500 steps.',
        tags: ['Keys'],
        params: KeyParams,
        querystring: UsageQuery,
        response: { 200: Usage },
      },
    },
    async (request) => {
      const lane = laneOf(request)
      const key = await keys.get(request.params.id, null, lane)
      if (key === null) throw notFound()
      return usageOrThrow(await usageHistory.read(key, request.query, lane))
    },
  )
}
