/**
 * The ops listener: probes, metrics and the admin API, on their own port, which need not be
 * reachable from outside.
 */
import Fastify, { type FastifyInstance } from 'fastify'
import errors from '../../plugins/errors.ts'
import httpFraming from '../../plugins/http-framing.ts'
import jsonBody from '../../plugins/json-body.ts'
import unknownRoute from '../../plugins/unknown-route.ts'
import { actorOf } from '../http/routes/actor.ts'
import { serverOptions } from '../http/server-options.ts'
import type { Service } from '../process/service.ts'
import { newId } from '../rules/id.ts'
import { auditRoutes } from './admin/audit.ts'
import { adminKeyRoutes } from './admin/keys.ts'
import { lookupRoute } from './admin/lookup.ts'
import { userRoutes } from './admin/users.ts'
import operatorAuth, { type OperatorAuthOptions } from './operator-auth.ts'

export interface OpsOptions extends Omit<OperatorAuthOptions, 'record'> {
  service: Pick<Service, 'metrics' | 'health' | 'stores' | 'lastUsed' | 'onError'>
  defaultRateLimitRpm: number
  docsBase: () => string
  /** The state of the public listener: not yet open, open, or about to close. */
  state: () => 'starting' | 'ready' | 'draining'
}

export function createOps(options: OpsOptions): FastifyInstance {
  const { service, docsBase, state } = options
  const { stores, onError } = service
  const { redact } = stores.tokenFormat
  const newRequestId = () => newId('req_')
  const ops: FastifyInstance = Fastify({ ...serverOptions(newRequestId), forceCloseConnections: true })
  ops.register(errors, { docsBase, redact, onError })
  ops.register(httpFraming, { newRequestId })
  ops.addHook('onRequest', async (_request, reply) => {
    reply.header('cache-control', 'no-store')
  })
  ops.register(operatorAuth, {
    ...options,
    record: (reason, request) =>
      stores.audit.recordOperatorRefusal({ ...actorOf(request, stores.tokenFormat), reason }),
  })
  ops.register(jsonBody, { redact })
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
  const admin = { ...stores, lastUsed: service.lastUsed, defaultRateLimitRpm: options.defaultRateLimitRpm }
  ops.register(userRoutes, admin)
  ops.register(adminKeyRoutes, admin)
  ops.register(auditRoutes, admin)
  ops.register(lookupRoute, admin)
  return ops
}
