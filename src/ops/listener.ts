/** The ops listener: probes and metrics, on a port of its own that need not be reachable from outside. */
import Fastify, { type FastifyInstance } from 'fastify'
import errors from '../../plugins/errors.ts'
import unknownRoute from '../../plugins/unknown-route.ts'
import { normalizeTarget } from '../http/app.ts'
import type { Service } from '../process/service.ts'
import { newId } from '../rules/id.ts'

export interface OpsOptions {
  service: Pick<Service, 'metrics' | 'health'>
  baseUrl: string
  /** Whether the service has begun to stop. */
  isDraining: () => boolean
}

export function createOps({ service, baseUrl, isDraining }: OpsOptions): FastifyInstance {
  const newRequestId = () => newId('req_')
  const ops = Fastify({
    logger: false,
    genReqId: newRequestId,
    forceCloseConnections: true,
    rewriteUrl: (request) => normalizeTarget(request.url!),
  })
  ops.register(errors, { docsBase: `${baseUrl}/docs/errors/`, newRequestId })
  ops.register(unknownRoute)
  ops.register(async (app) => {
    app.addHook('onRequest', async (_request, reply) => {
      reply.header('cache-control', 'no-store')
    })
    app.get('/healthz', () => ({ status: 'ok' }))
    // A server behind that is away does not fail it: a load balancer would drop every instance at once.
    app.get('/readyz', (_request, reply) => {
      const draining = isDraining()
      return reply
        .code(draining ? 503 : 200)
        .send({ status: draining ? 'draining' : 'ready', ...service.health() })
    })
    app.get('/metrics', async (_request, reply) => {
      reply.type(service.metrics.registry.contentType)
      return service.metrics.registry.metrics()
    })
  })
  return ops
}
