/** Lookup for operators: identifies what a customer has sent. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { ApiError } from '../../../plugins/api-error.ts'
import { Lookup, LookupBody } from '../../../schemas/lookup.ts'
import type { LastUsed } from '../../guard/last-used.ts'
import { withPendingUses } from '../../http/routes/key-rules.ts'
import { adminKeyBody } from '../../stores.ts'
import { laneOf } from './admin-rules.ts'
import { createLookup, type FindOptions } from './find-anything.ts'

export interface LookupOptions extends FindOptions {
  lastUsed: Pick<LastUsed, 'pending'>
}

export const lookupRoute: FastifyPluginAsyncTypebox<LookupOptions> = async (app, options) => {
  const find = createLookup(options)

  app.post(
    '/admin/lookup',
    {
      schema: {
        operationId: 'lookup',
        summary: 'Find out what something is',
        description:
          'Takes a whole key, the beginning of a key, an id or an external id. A whole key is never stored or logged.',
        tags: ['Lookup'],
        body: LookupBody,
        response: { 200: Lookup },
        errors: ['not_found'],
      },
      // Fastify's serializer takes no union whose members share named schemas.
      serializerCompiler: () => JSON.stringify,
    },
    async (request) => {
      const toBody = withPendingUses(options.lastUsed, adminKeyBody)
      const found = await find(request.body.query, { lane: laneOf(request), toBody })
      if (found === null) throw nothingFound()
      return found
    },
  )
}

const nothingFound = () =>
  new ApiError('not_found', {
    param: 'query',
    suggestion:
      'Check the spelling, and that it belongs to this environment. To find a key, send the whole key or its complete `key_prefix`.',
  })
