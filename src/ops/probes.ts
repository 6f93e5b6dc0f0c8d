/** What load balancers and Prometheus ask: is it alive, may it get requests, and its metrics. */
import type { FastifyInstance } from 'fastify'
import { Alive, PrometheusText, Readiness } from '../../schemas/probe.ts'
import type { Service } from '../process/service.ts'

export interface ProbesOptions {
  service: Pick<Service, 'metrics' | 'health'>
  /** The state of the public listener: not yet open, open, or about to close. */
  state: () => 'starting' | 'ready' | 'draining'
}

const tags = ['Monitoring']
const alive = {
  operationId: 'healthz',
  summary: 'Say that the process is alive',
  tags,
  response: { 200: Alive },
}
const ready = {
  operationId: 'readyz',
  summary: 'Say whether to send requests here',
  tags,
  response: { 200: Readiness, 503: Readiness },
}
const metrics = {
  operationId: 'metrics',
  summary: 'Metrics for Prometheus',
  tags,
  response: { 200: { content: { 'text/plain': { schema: PrometheusText } } } },
}

export async function probes(app: FastifyInstance, { service, state }: ProbesOptions): Promise<void> {
  app.get('/healthz', { config: { credential: 'none' }, schema: alive }, () => ({ status: 'ok' }))

  // A Redis or Postgres that is down does not fail this probe, or a load balancer would drop every
  // instance at once.
  app.get('/readyz', { config: { credential: 'none' }, schema: ready }, (_request, reply) => {
    const status = state()
    return reply.code(status === 'ready' ? 200 : 503).send({ status, ...service.health() })
  })

  app.get('/metrics', { config: { credential: 'metrics' }, schema: metrics }, async (_request, reply) => {
    const { registry } = service.metrics
    reply.type(registry.contentType)
    return registry.metrics()
  })
}
