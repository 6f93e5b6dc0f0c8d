/** GET /admin/counters: the busiest keys. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Counters, CountersQuery } from '../../../schemas/counters.ts'
import { limitOf } from '../../http/routes/lists.ts'
import type { Board } from '../board.ts'
import { laneOf } from './admin-rules.ts'
import { countersBody } from './counters-body.ts'

export const countersRoute: FastifyPluginAsyncTypebox<{ board: Board }> = async (app, { board }) => {
  app.get(
    '/admin/counters',
    {
      schema: {
        operationId: 'listCounters',
        summary: 'List the busiest keys of a minute',
        description:
          'Read from the counters in Redis, in one scan shared by all requests. Ask again until it is `complete`.',
        tags: ['Counters'],
        querystring: CountersQuery,
        response: { 200: Counters },
      },
    },
    async (request) => {
      const { minute = 'current', sort = 'used' } = request.query
      const view = await board.read(minute, laneOf(request))
      return countersBody(view, sort, limitOf(request.query))
    },
  )
}
