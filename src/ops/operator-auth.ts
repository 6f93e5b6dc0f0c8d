/**
 * Lets only operators use the ops listener. With OPS_TOKEN, a request needs one of its tokens.
 * Without it, the request must come from this machine and its Host header must name this machine. A
 * route that needs something else says so in its `config`, so a route that says nothing is
 * protected.
 *
 * Runs in onRequest, for unknown routes too, so that nobody without a token learns which routes
 * exist.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import { isIPv4 } from 'node:net'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { ApiError } from '../../plugins/api-error.ts'

export interface OperatorToken {
  readonly name: string
  readonly token: string
}

export interface OperatorAuthOptions {
  /** If empty, requests from this machine need no token, and all others are refused. */
  tokens: readonly OperatorToken[]
  /** null: the metrics need no token. */
  metricsToken: string | null
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Who made the request: the name of the token, or `local`. */
    operator: string | null
  }
  interface FastifyContextConfig {
    /** What the route needs instead of an operator. */
    credential?: 'none' | 'metrics'
  }
}

const localOperator = 'local'

export default fp<OperatorAuthOptions>(
  async (app, { tokens, metricsToken }) => {
    const operatorOf = tokenReader(tokens)
    const scraperOf = tokenReader(metricsToken === null ? [] : [{ name: 'metrics', token: metricsToken }])
    const isBoundToLoopback = () => isLoopback((app.server.address() as AddressInfo | null)?.address ?? '')

    app.decorateRequest('operator', null)
    app.addHook('onRequest', (request, _reply, done) => {
      const { credential } = request.routeOptions.config
      if (credential === 'none' || (credential === 'metrics' && metricsToken === null)) return done()
      if (credential === 'metrics') {
        return done(scraperOf(request) === null ? unauthorized('METRICS_TOKEN') : undefined)
      }
      if (isFromForeignPage(request)) return done(unauthorized())
      if (tokens.length > 0) request.operator = operatorOf(request)
      else if (isBoundToLoopback() && namesLoopback(request.headers.host)) request.operator = localOperator
      done(request.operator === null ? unauthorized() : undefined)
    })
  },
  { name: 'operator-auth', dependencies: ['errors'] },
)

const unauthorized = (tokenName = 'OPS_TOKEN') =>
  new ApiError('operator_unauthorized', {
    param: 'authorization',
    ...(tokenName === 'METRICS_TOKEN' && {
      suggestion: 'Send `Authorization: Bearer …` with the METRICS_TOKEN of this service.',
    }),
    headers: { 'www-authenticate': 'Bearer realm="latchkey ops"' },
  })

/**
 * Returns a function that names the owner of a request's token, or null. It compares the digests of
 * all tokens, so that the time taken reveals nothing about any of them.
 */
function tokenReader(tokens: readonly OperatorToken[]) {
  const known = tokens.map(({ name, token }) => ({ name, digest: digestOf(token) }))
  return ({ raw: { rawHeaders } }: FastifyRequest): string | null => {
    // Node hides a second Authorization header.
    const values = rawHeaders.filter(
      (_, i) => i % 2 === 1 && rawHeaders[i - 1]!.toLowerCase() === 'authorization',
    )
    const presented = values.length === 1 ? /^Bearer (\S+)$/.exec(values[0]!)?.[1] : undefined
    if (presented === undefined) return null
    const digest = digestOf(presented)
    const matching = known.filter((operator) => timingSafeEqual(operator.digest, digest))
    return matching[0]?.name ?? null
  }
}

const digestOf = (token: string) => createHash('sha256').update(token).digest()

const isLoopback = (address: string) => address === '::1' || (isIPv4(address) && address.startsWith('127.'))

/**
 * By DNS rebinding, a web page can reach this machine under its own host name. The browser then
 * sends that name.
 */
function namesLoopback(host = ''): boolean {
  const name = /^(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d+)?$/.exec(host.toLowerCase())?.[1] ?? ''
  return name === 'localhost' || name.endsWith('.localhost') || isLoopback(name.replace(/^\[(.*)\]$/, '$1'))
}

const safeMethods = ['GET', 'HEAD', 'OPTIONS']

/**
 * A browser sends the Origin of a state-changing request. Clients that are not browsers send none.
 */
function isFromForeignPage({ method, headers: { origin, host } }: FastifyRequest): boolean {
  if (origin === undefined || safeMethods.includes(method)) return false
  return !URL.canParse(origin) || new URL(origin).host !== host?.toLowerCase()
}
