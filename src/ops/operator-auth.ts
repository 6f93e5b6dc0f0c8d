/**
 * Lets only operators use the ops listener. With OPS_TOKEN, a request needs one of its tokens.
 * Without it, the request must come from this machine and its Host header must name this machine. A
 * route that needs something else says so in its `config`, so a route that says nothing is
 * protected.
 *
 * Every refusal is recorded before the 401 is sent. Someone who guesses tokens gets few guesses a
 * minute: after that, no token helps, so a right guess shows nothing.
 *
 * Runs in onRequest, for unknown routes too, so that nobody without a token learns which routes
 * exist.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import { isIPv4 } from 'node:net'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { ApiError, unavailable } from '../../plugins/api-error.ts'
import type { OperatorRefusalReason } from '../../schemas/refusal.ts'
import { createRefusalBudget } from '../guard/refusal-budget.ts'

export interface OperatorToken {
  readonly name: string
  readonly token: string
}

export interface OperatorAuthOptions {
  /** If empty, requests from this machine need no token, and all others are refused. */
  tokens: readonly OperatorToken[]
  /** null: the metrics need no token. */
  metricsToken: string | null
  /** Stores the reason. The 401 is sent when it resolves; if it rejects, the response is a 503. */
  record: (reason: OperatorRefusalReason, request: FastifyRequest) => Promise<void>
  /** Unix milliseconds. */
  now?: (() => number) | undefined
}

/** Refusals of one address in a minute. A person who mistypes a token needs far fewer. */
const refusalsPerAddressRpm = 60

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
  async (app, { tokens, metricsToken, record, now = Date.now }) => {
    const operatorOf = tokenReader(tokens)
    const scraperOf = tokenReader(metricsToken === null ? [] : [{ name: 'metrics', token: metricsToken }])
    const budget = createRefusalBudget({ perMinute: refusalsPerAddressRpm, now })
    const isBoundToLoopback = () => isLoopback((app.server.address() as AddressInfo | null)?.address ?? '')

    app.decorateRequest('operator', null)
    app.addHook('onRequest', (request, _reply, done) => {
      const { credential } = request.routeOptions.config
      if (credential === 'none' || (credential === 'metrics' && metricsToken === null)) return done()
      const waitS = budget.peek(request.ip)
      if (waitS > 0) return done(tooManyRefusals(waitS))
      const isScrape = credential === 'metrics'
      const reason = isScrape ? tokenFault(request, scraperOf(request)) : operatorFault(request)
      if (reason === null) return done()
      budget.take(request.ip)
      record(reason, request).then(
        () => done(unauthorized(isScrape)),
        (cause) => done(unavailable(cause)),
      )
    })

    function operatorFault(request: FastifyRequest): OperatorRefusalReason | null {
      if (isFromForeignPage(request)) return 'foreign_origin'
      if (tokens.length > 0) {
        request.operator = operatorOf(request)
        return tokenFault(request, request.operator)
      }
      if (!isBoundToLoopback()) return 'missing_token'
      if (!namesLoopback(request.headers.host)) return 'foreign_host'
      request.operator = localOperator
      return null
    }
  },
  { name: 'operator-auth', dependencies: ['errors'] },
)

const tokenFault = ({ headers }: FastifyRequest, owner: string | null): OperatorRefusalReason | null => {
  if (owner !== null) return null
  return headers.authorization === undefined ? 'missing_token' : 'wrong_token'
}

const tooManyRefusals = (waitS: number) =>
  new ApiError('rate_limit_exceeded', {
    message: 'This address was refused too often within a minute.',
    suggestion: 'Wait for the number of seconds in Retry-After, then send the right token.',
    headers: { 'retry-after': String(waitS) },
  })

const unauthorized = (isScrape: boolean) =>
  new ApiError('operator_unauthorized', {
    param: 'authorization',
    ...(isScrape && {
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

export const isLoopback = (address: string) =>
  address === '::1' || (isIPv4(address) && address.startsWith('127.'))

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
