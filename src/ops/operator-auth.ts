/**
 * Lets only operators use the ops listener. With OPS_TOKEN, a request needs one of its tokens, or a
 * session that began with one. Without it, the request must come from this machine and its Host
 * header must name this machine. A route that needs something else says so in its `config`, so a
 * route that says nothing is protected.
 *
 * Every refusal is recorded before the 401 is sent. Someone who guesses tokens gets few guesses a
 * minute: after that, no token helps, so a right guess shows nothing. Requests that guess no token have a
 * separate budget. Otherwise any web page that an operator visits could lock the operator out, by
 * making the browser send such requests.
 *
 * Runs in onRequest, for unknown routes too, so that nobody without a token learns which routes
 * exist.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import type { Static } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { ApiError, unavailable } from '../../plugins/api-error.ts'
import type { LoginBody } from '../../schemas/login.ts'
import type { OperatorRefusalReason } from '../../schemas/refusal.ts'
import { createRefusalBudget } from '../guard/refusal-budget.ts'
import { isFromForeignPage, isLoopback, isSafe, namesLoopback } from './request-origin.ts'
import type { OperatorToken, Sessions } from './sessions.ts'

export interface OperatorAuthOptions {
  /** If empty, requests from this machine need no token, and all others are refused. */
  tokens: readonly OperatorToken[]
  sessions: Pick<Sessions, 'ownerOf'>
  /** null: the metrics need no token. */
  metricsToken: string | null
  record: RecordOperatorRefusal
  /** Unix milliseconds. */
  now?: (() => number) | undefined
}

/** Stores the reason. The 401 is sent when it resolves; if it rejects, the response is a 503. */
export type RecordOperatorRefusal = (reason: OperatorRefusalReason, request: FastifyRequest) => Promise<void>

/** Refusals of one address in a minute, in each budget. A person who mistypes a token needs far fewer. */
export const refusalsPerAddressRpm = 60

declare module 'fastify' {
  interface FastifyRequest {
    /** Who made the request: the name of the token, or `local`. */
    operator: string | null
  }
  interface FastifyContextConfig {
    /**
     * What the route needs instead of an operator. login: a token in the body. page: with
     * OPS_TOKEN nothing, as it then shows the login to those without a session. signature: see
     * github-signature.ts.
     */
    credential?: 'none' | 'metrics' | 'login' | 'page' | 'signature'
  }
}

const localOperator = 'local'

export default fp<OperatorAuthOptions>(
  async (app, { tokens, sessions, metricsToken, record, now = Date.now }) => {
    const operatorOf = tokenReader(tokens)
    const scraperOf = tokenReader(metricsToken === null ? [] : [{ name: 'metrics', token: metricsToken }])
    const newBudget = () => createRefusalBudget({ perMinute: refusalsPerAddressRpm, now })
    const guesses = newBudget()
    const others = newBudget()
    const isBoundToLoopback = () => isLoopback((app.server.address() as AddressInfo | null)?.address ?? '')

    app.decorateRequest('operator', null)
    app.addHook('onRequest', (request, _reply, done) => {
      const { credential } = request.routeOptions.config
      if (credential === 'none' || credential === 'signature') return done()
      if (credential === 'metrics' && metricsToken === null) return done()
      if (credential === 'page' && tokens.length > 0) {
        request.operator = sessions.ownerOf(request.headers.cookie)
        return done()
      }
      const reason = pageFault(request)
      if (reason !== null) return refuse(request, reason, done)
      if (credential === 'login') return check(request, () => null, done)
      check(request, credential === 'metrics' ? scraperFault : operatorFault, done)
    })
    // The body is read by now, and other guesses may have used up the budget meanwhile.
    app.addHook('preHandler', (request, _reply, done) => {
      if (request.routeOptions.config.credential !== 'login') return done()
      check(request, loginFault, done)
    })

    function check(
      request: FastifyRequest,
      faultOf: (request: FastifyRequest) => OperatorRefusalReason | null,
      done: (error?: Error) => void,
    ) {
      const waitS = guesses.peek(request.ip)
      if (waitS > 0) return done(tooManyRefusals(waitS))
      const reason = faultOf(request)
      if (reason === null) return done()
      refuse(request, reason, done)
    }

    function refuse(request: FastifyRequest, reason: OperatorRefusalReason, done: (error?: Error) => void) {
      const waitS = (reason === 'wrong_token' ? guesses : others).take(request.ip)
      if (waitS > 0) return done(tooManyRefusals(waitS, 'token, Origin and Host'))
      record(reason, request).then(
        () => done(unauthorized(request.routeOptions.config.credential)),
        (cause) => done(unavailable(cause)),
      )
    }

    function scraperFault(request: FastifyRequest) {
      return tokenFault(request, scraperOf(bearerOf(request)))
    }

    function loginFault(request: FastifyRequest): OperatorRefusalReason | null {
      request.operator = operatorOf((request.body as Static<typeof LoginBody>).token)
      return request.operator === null ? 'wrong_token' : null
    }

    function pageFault(request: FastifyRequest): OperatorRefusalReason | null {
      if (isFromForeignPage(request)) return 'foreign_origin'
      const isOperators = request.routeOptions.config.credential !== 'metrics'
      const isOpen = isOperators && tokens.length === 0 && isBoundToLoopback()
      return isOpen && !namesLoopback(request.headers.host) ? 'foreign_host' : null
    }

    function operatorFault(request: FastifyRequest): OperatorRefusalReason | null {
      if (tokens.length > 0) return credentialFault(request)
      if (!isBoundToLoopback()) return 'missing_token'
      request.operator = localOperator
      return null
    }

    function credentialFault(request: FastifyRequest): OperatorRefusalReason | null {
      const { authorization, origin, cookie } = request.headers
      const owner = authorization === undefined ? sessions.ownerOf(cookie) : null
      // A browser sends a cookie by itself, so the page must show that it is ours.
      if (owner !== null && origin === undefined && !isSafe(request)) return 'foreign_origin'
      request.operator = owner ?? operatorOf(bearerOf(request))
      return tokenFault(request, request.operator)
    }
  },
  { name: 'operator-auth', dependencies: ['errors'] },
)

const tokenFault = ({ headers }: FastifyRequest, owner: string | null): OperatorRefusalReason | null => {
  if (owner !== null) return null
  return headers.authorization === undefined ? 'missing_token' : 'wrong_token'
}

export const tooManyRefusals = (waitS: number, credential = 'token') =>
  new ApiError('rate_limit_exceeded', {
    message: 'This address was refused too often within a minute.',
    suggestion: `Wait for the number of seconds in Retry-After, then send the right ${credential}.`,
    headers: { 'retry-after': String(waitS) },
  })

export const challenge = { 'www-authenticate': 'Bearer realm="latchkey ops"' }

/** What to send to routes that do not take a token from OPS_TOKEN in a header. */
const suggestions: Record<string, string> = {
  metrics: 'Send `Authorization: Bearer …` with the METRICS_TOKEN of this service.',
  login:
    'Send one of the tokens in OPS_TOKEN, without its name, from the page of this listener. A proxy in front must pass on the Host header, with its port.',
}

const unauthorized = (credential = 'operator') =>
  new ApiError('operator_unauthorized', {
    param: credential === 'login' ? 'token' : 'authorization',
    suggestion: suggestions[credential],
    headers: challenge,
  })

/**
 * Returns a function that names the owner of a token, or null. It compares the digests of all
 * tokens, so that the time taken reveals nothing about any of them.
 */
function tokenReader(tokens: readonly OperatorToken[]) {
  const known = tokens.map(({ name, token }) => ({ name, digest: digestOf(token) }))
  return (presented: string | null): string | null => {
    if (presented === null) return null
    const digest = digestOf(presented)
    const matching = known.filter((operator) => timingSafeEqual(operator.digest, digest))
    return matching[0]?.name ?? null
  }
}

function bearerOf({ raw: { rawHeaders } }: FastifyRequest): string | null {
  // Node hides a second Authorization header.
  const values = rawHeaders.filter(
    (_, i) => i % 2 === 1 && rawHeaders[i - 1]!.toLowerCase() === 'authorization',
  )
  return (values.length === 1 && /^Bearer (\S+)$/.exec(values[0]!)?.[1]) || null
}

const digestOf = (token: string) => createHash('sha256').update(token).digest()
