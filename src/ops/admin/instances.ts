/** Every running instance, for operators. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { InstanceList } from '../../../schemas/instance.ts'
import type { Fleet, FleetView } from '../fleet.ts'
import { laneOf } from './admin-rules.ts'

export const instancesRoute: FastifyPluginAsyncTypebox<{ fleet: Fleet }> = async (app, { fleet }) => {
  app.get(
    '/admin/instances',
    {
      schema: {
        operationId: 'listInstances',
        summary: 'List the running instances',
        description: 'One that was killed stays for one to two hours, as not `alive`.',
        tags: ['Monitoring'],
        response: { 200: InstanceList },
      },
    },
    async (request) => instancesBody(await fleet.read(laneOf(request))),
  )
}

export const instancesBody = ({ complete, instances }: FleetView) => ({
  complete,
  instances: instances.map((instance) => ({
    id: instance.id,
    version: instance.version,
    started_at: Math.floor(instance.startedAt),
    seen_at: Math.floor(instance.seenAt),
    silent_s: Math.floor(instance.silentS),
    alive: instance.isAlive,
    redis: instance.counting,
    postgres: instance.postgres,
  })),
})
