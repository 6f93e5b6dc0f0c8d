/**
 * The ops listener: probes, metrics, the admin API and the dashboard, on their own port, which need
 * not be reachable from outside.
 */
import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import errors from '../../plugins/errors.ts'
import httpFraming from '../../plugins/http-framing.ts'
import jsonBody from '../../plugins/json-body.ts'
import noQuery from '../../plugins/no-query.ts'
import unknownRoute from '../../plugins/unknown-route.ts'
import type { Config } from '../config.ts'
import { Fastify } from '../http/fastify.ts'
import { rememberAddresses } from '../http/peer-address.ts'
import { actorOf } from '../http/routes/actor.ts'
import { serverOptions } from '../http/server-options.ts'
import { closeUnread } from '../http/unread.ts'
import openapi from '../openapi/document.ts'
import type { Service } from '../process/service.ts'
import { newId } from '../rules/id.ts'
import { auditRoutes } from './admin/audit.ts'
import { countersRoute } from './admin/counters.ts'
import { documentRoutes } from './admin/document.ts'
import { githubScanRoute } from './admin/github-scan.ts'
import { instancesRoute } from './admin/instances.ts'
import { adminKeyRoutes } from './admin/keys.ts'
import { lookupRoute } from './admin/lookup.ts'
import { scanRoute } from './admin/scan.ts'
import { adminUsageRoute } from './admin/usage.ts'
import { userRoutes } from './admin/users.ts'
import { createBoard } from './board.ts'
import { dashboardRoutes } from './dashboard.ts'
import { eventsRoute } from './events.ts'
import { createFleet } from './fleet.ts'
import githubSignature from './github-signature.ts'
import { adminOpenApi } from './openapi.ts'
import operatorAuth, { type OperatorAuthOptions, type RecordOperatorRefusal } from './operator-auth.ts'
import { type ProbesOptions, probes } from './probes.ts'
import { createSessions } from './sessions.ts'

export interface OpsOptions extends Pick<ProbesOptions, 'state'>, Pick<OperatorAuthOptions, 'now'> {
  config: Pick<
    Config,
    'opsTokens' | 'metricsToken' | 'githubScanningKeysFile' | 'defaultRateLimitRpm' | 'maxRateLimitRpm'
  >
  service: Pick<Service, 'metrics' | 'health' | 'stores' | 'lastUsed' | 'onError' | 'instance'>
  docsBase: () => string
}

export function createOps(options: OpsOptions): FastifyInstance {
  const { config, service, docsBase, state, now } = options
  const { opsTokens, metricsToken, githubScanningKeysFile, defaultRateLimitRpm, maxRateLimitRpm } = config
  const { stores, onError } = service
  const { redact } = stores.tokenFormat
  const newRequestId = () => newId('req_')
  const sessions = createSessions(opsTokens, now)
  const ops: FastifyInstance = Fastify({ ...serverOptions(newRequestId), forceCloseConnections: true })
  closeUnread(ops.server)
  rememberAddresses(ops.server)
  ops.register(errors, { docsBase, redact, onError })
  ops.register(httpFraming, { newRequestId })
  ops.addHook('onRequest', async (_request, reply) => {
    reply.header('cache-control', 'no-store')
  })
  const record: RecordOperatorRefusal = async (reason, request) => {
    await stores.audit.recordOperatorRefusal({ ...actorOf(request, stores.tokenFormat), reason })
    service.metrics.operatorRefused(reason)
  }
  ops.register(operatorAuth, { tokens: opsTokens, metricsToken, sessions, record, now })
  ops.register(jsonBody, { redact })
  ops.register(unknownRoute, { suggestion: 'Check the path. /admin/openapi.json lists all of them.' })
  ops.register(openapi, adminOpenApi({ serverUrl: () => urlOf(ops), docsBase }))
  ops.register(probes, { service, state })
  ops.register(noQuery)
  const admin = { ...stores, lastUsed: service.lastUsed, defaultRateLimitRpm, maxRateLimitRpm }
  ops.register(userRoutes, admin)
  ops.register(adminKeyRoutes, admin)
  ops.register(scanRoute, admin)
  // Without the keys, GitHub's reports of leaked keys have no route.
  if (githubScanningKeysFile !== null) {
    ops.register(async (scope) => {
      scope.register(githubSignature, { keysFile: githubScanningKeysFile, record, now })
      scope.register(githubScanRoute, admin)
    })
  }
  ops.register(adminUsageRoute, admin)
  ops.register(auditRoutes, admin)
  ops.register(lookupRoute, admin)
  const board = createBoard(stores)
  ops.addHook('onClose', async () => board.close())
  ops.register(countersRoute, { board })
  const fleet = createFleet({ instances: stores.instances, own: service.instance })
  ops.register(instancesRoute, { fleet })
  const hasTokens = opsTokens.length > 0
  ops.register(dashboardRoutes, { sessions, hasTokens })
  ops.register(eventsRoute, { service, board, fleet, hasTokens, isClosing: () => state() === 'draining' })
  ops.register(documentRoutes, { docsBase })
  return ops
}

function urlOf(ops: FastifyInstance): string {
  const { port } = (ops.server.address() ?? { port: 0 }) as AddressInfo
  return `http://localhost:${port}`
}
