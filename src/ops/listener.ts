/**
 * The ops listener: probes and metrics, on their own port, which need not be reachable from
 * outside.
 */
import Fastify, { type FastifyInstance } from 'fastify'
import errors from '../../plugins/errors.ts'
import httpFraming from '../../plugins/http-framing.ts'
import unknownRoute from '../../plugins/unknown-route.ts'
import { normalizeTarget } from '../http/app.ts'
import type { Service } from '../process/service.ts'
import { newId } from '../rules/id.ts'
import operatorAuth, { type OperatorAuthOptions } from './operator-auth.ts'

export interface OpsOptions extends OperatorAuthOptions {
  service: Pick<Service, 'metrics' | 'health'>
  docsBase: () => string
  /** The state of the public listener: not yet open, open, or about to close. */
  state: () => 'starting' | 'ready' | 'draining'
}

export function createOps({ service, docsBase, state, tokens, metricsToken }: OpsOptions): FastifyInstance {
  const newRequestId = () => newId('req_')
  const ops = Fastify({
    logger: false,
    genReqId: newRequestId,
    forceCloseConnections: true,
    rewriteUrl: (request) => normalizeTarget(request.url!),
  })
  ops.register(errors, { docsBase })
  ops.register(httpFraming, { newRequestId })
  ops.addHook('onRequest', async (_request, reply) => {
    reply.header('cache-control', 'no-store')
  })
  ops.register(operatorAuth, { tokens, metricsToken })
  ops.register(unknownRoute)
  ops.register(async (app) => {
    const open = { config: { credential: 'none' } } as const
    app.get('/healthz', open, () => ({ status: 'ok' }))
    // A Redis or Postgres that is down does not fail this probe, or a load balancer would drop
    // every instance at once.
    app.get('/readyz', open, (_request, reply) => {
      const status = state()
      return reply.code(status === 'ready' ? 200 : 503).send({ status, ...service.health() })
    })
    app.get('/metrics', { config: { credential: 'metrics' } }, async (_request, reply) => {
      reply.type(service.metrics.registry.contentType)
      return service.metrics.registry.metrics()
    })
  })
  return ops
}
