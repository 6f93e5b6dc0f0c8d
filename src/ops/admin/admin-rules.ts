/** What all routes of the admin API have in common. */
import type { FastifyRequest } from 'fastify'
import { ApiError } from '../../../plugins/api-error.ts'
import type { Operator } from '../../stores.ts'

/** Whose queue for a connection a request waits in. By now, operator-auth.ts has let it through. */
export const laneOf = (request: FastifyRequest): Operator => `operator:${request.operator!}`

export const notFound = (param: 'id' | 'user_id' | 'key_id' | 'starting_after' = 'id') =>
  new ApiError('not_found', {
    param,
    suggestion:
      'Check the spelling and the prefix: `usr_` for users, `apk_` for keys, and the `next_cursor` of a list for `starting_after`.',
  })
