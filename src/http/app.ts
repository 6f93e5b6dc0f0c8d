/**
 * The public listener. It reads in the order in which a request travels: errors, authenticate, rate
 * limit, routes.
 */
import type { AddressInfo } from 'node:net'
import { compile } from '@fastify/proxy-addr'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ApiError } from '../../plugins/api-error.ts'
import authenticate, { type AuthenticateOptions, type Caller } from '../../plugins/authenticate.ts'
import errors from '../../plugins/errors.ts'
import httpFraming from '../../plugins/http-framing.ts'
import jsonBody from '../../plugins/json-body.ts'
import noQuery from '../../plugins/no-query.ts'
import rateLimit, { type RateLimitOptions } from '../../plugins/rate-limit.ts'
import unknownRoute from '../../plugins/unknown-route.ts'
import type { Config } from '../config.ts'
import openapi from '../openapi/document.ts'
import { newId } from '../rules/id.ts'
import { Fastify } from './fastify.ts'
import { publicOpenApi } from './openapi.ts'
import { rememberAddresses } from './peer-address.ts'
import { withoutPort } from './routes/actor.ts'
import { docsRoutes, publicPaths } from './routes/docs.ts'
import { type KeyRoutesOptions, keyRoutes } from './routes/keys.ts'
import { type UsageRouteOptions, usageRoute } from './routes/usage.ts'
import { verifyRoute } from './routes/verify.ts'
import { serverOptions } from './server-options.ts'
import { closeUnread } from './unread.ts'

export interface AppOptions<C extends Caller>
  extends Omit<KeyRoutesOptions, 'defaultRateLimitRpm' | 'maxRateLimitRpm' | 'basePath'>,
    Pick<UsageRouteOptions, 'usageHistory'> {
  config: Pick<Config, 'baseUrl' | 'port' | 'trustProxy' | 'defaultRateLimitRpm' | 'maxRateLimitRpm'>
  verify: AuthenticateOptions<C>['verify']
  record: AuthenticateOptions['record']
  hit: RateLimitOptions<C>['hit']
  /**
   * One more response with this status. `route`: the pattern that it matched, if any. `seconds`:
   * from the headers of the request to those of the response; unknown for what the parser refused.
   */
  onAnswer: (status: number, route?: string, seconds?: number) => void
  onError: (error: ApiError, request: FastifyRequest | null, requestId: string) => void
  /** Called after each response, for debugging. */
  onResponse?: (request: FastifyRequest, status: number, ms: number) => void
}

declare module 'fastify' {
  interface FastifyInstance {
    /** The URL of the error pages, ending in a slash. */
    docsBase: () => string
  }
  interface FastifyRequest {
    /** When its headers had been read, performance.now(). */
    startMs: number
    /** Whether it comes from a proxy that TRUST_PROXY trusts. */
    isFromProxy: boolean
  }
}

/**
 * Longer than a load balancer's usual 60 s, so that we never close a connection that it is about to
 * use.
 */
const keepAliveTimeoutMs = 75_000

export function createApp<C extends Caller>(options: AppOptions<C>): FastifyInstance {
  const { config, verify, record, hit, tokenFormat, onError, onResponse, onAnswer } = options
  const { baseUrl, port, defaultRateLimitRpm, maxRateLimitRpm } = config
  const basePath = baseUrl === null ? '' : pathOf(baseUrl)
  const { redact } = tokenFormat
  const newRequestId = () => newId('req_')
  const isProxy = proxyTest(config.trustProxy)

  const app: FastifyInstance = Fastify({
    ...serverOptions(newRequestId),
    keepAliveTimeout: keepAliveTimeoutMs,
    trustProxy: isProxy ?? false,
    return503OnClosing: false,
    forceCloseConnections: 'idle',
  })
  closeUnread(app.server)
  rememberAddresses(app.server)

  let boundPort = port
  app.server.once('listening', () => {
    boundPort = (app.server.address() as AddressInfo).port
  })
  const serverUrl = () => baseUrl ?? `http://localhost:${boundPort}`
  const docsBase = () => `${serverUrl()}/docs/errors/`
  app.decorate('docsBase', docsBase)
  app.decorateRequest('startMs', 0)
  app.decorateRequest('isFromProxy', {
    getter() {
      return isProxy?.(this.socket.remoteAddress, 0) ?? false
    },
  })
  app.addHook('onRequest', (request, _reply, done) => {
    request.startMs = performance.now()
    done()
  })
  app.addHook('onSend', (request, reply, _payload, done) => {
    onAnswer(reply.statusCode, request.routeOptions.url, (performance.now() - request.startMs) / 1000)
    done()
  })
  app.register(errors, {
    docsBase,
    redact,
    onError(error, request, requestId) {
      // The parser's own: no hook runs for it.
      if (request === null) onAnswer(error.statusCode)
      onError(error, request, requestId)
    },
  })
  app.register(httpFraming, { newRequestId })
  if (onResponse) {
    app.addHook('onResponse', async (request, reply) =>
      onResponse(request, reply.statusCode, reply.elapsedTime),
    )
  }
  app.register(openapi, publicOpenApi({ serverUrl, docsBase }))
  app.register(docsRoutes, { basePath })
  app.register(async (guarded) => {
    guarded.register(authenticate, { tokenPrefix: tokenFormat.prefix, verify, record })
    guarded.register(rateLimit, { hit })
    guarded.register(jsonBody, { redact })
    guarded.register(unknownRoute, { pages: publicPaths })
    // Before `noQuery`: a gateway may send the query of another request along.
    guarded.register(verifyRoute)
    guarded.register(noQuery)
    guarded.register(keyRoutes, { ...options, defaultRateLimitRpm, maxRateLimitRpm, basePath })
    guarded.register(usageRoute, options)
  })
  return app
}

/** The path of a URL, without a slash at its end. */
const pathOf = (url: string) => new URL(url).pathname.replace(/\/$/, '')

/**
 * Whether to trust the proxy `hop` hops away from us. With a number, only that many hops are
 * trusted, so never an entry that the client wrote itself. Null: trust no proxy.
 */
function proxyTest(
  proxies: Config['trustProxy'],
): ((address: string | undefined, hop: number) => boolean) | null {
  if (typeof proxies === 'number') return (_address, hop) => hop < proxies
  if (proxies === false) return null
  const isTrusted = compile([...proxies])
  // A client that reset the connection before it was accepted has no address.
  return (address, hop) => address !== undefined && isTrusted(withoutPort(address), hop)
}
