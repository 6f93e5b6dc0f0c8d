/** GET /admin/keys/{id}/usage: how often any key was used. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { type UsageRouteOptions, usageOperation, usageOrThrow } from '../../http/routes/usage.ts'
import { laneOf, notFound } from './admin-rules.ts'

export const adminUsageRoute: FastifyPluginAsyncTypebox<UsageRouteOptions> = async (app, options) => {
  const { keys, usageHistory } = options
  app.get(
    '/admin/keys/:id/usage',
    { schema: { ...usageOperation, summary: 'Get the usage of any key' } },
    async (request) => {
      const lane = laneOf(request)
      const key = await keys.get(request.params.id, null, lane)
      if (key === null) throw notFound()
      return usageOrThrow(await usageHistory.read(key, request.query, lane))
    },
  )
}
