/**
 * Lets a request pass only with a usable API key (docs/api.md, Authentication). It knows how a key
 * is presented; `verify` knows how to look one up. Every refusal is the same 401, sent once `record`
 * has stored the reason.
 *
 * Runs in onRequest: before the body is read, and for unknown routes too, so that nobody without a
 * key learns more.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { type ApiError, unavailable } from './api-error.ts'
import { type Caller, type Denied, presentedToken, refusal, type Verdict } from './verdict.ts'

export type { Caller, Denied, Verdict } from './verdict.ts'

/** `C`: what the host application knows about a caller. */
export interface AuthenticateOptions<C extends Caller = Caller> {
  /** The token's fixed beginning, without the underscore. */
  tokenPrefix: string
  /** What the 401 names in WWW-Authenticate (RFC 9110, 11.6.1). */
  realm?: string
  /**
   * Whose token is this? A callback and not a promise, so that a request with a cached key
   * allocates nothing: it may be called at once. An error means that this cannot be decided now;
   * the response is a 503.
   */
  verify: (token: string, done: (error: Error | null, verdict?: Verdict<C>) => void) => void
  /**
   * Stores the reason. The 401 is sent when it resolves. If it rejects, the response is that
   * ApiError, or else a 503.
   */
  record: (denied: Denied, request: FastifyRequest) => Promise<void>
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller | null
  }
  interface FastifyInstance {
    /**
     * Denies a request whose key turned out to be unusable: stores the reason, then resolves with
     * the 401.
     */
    unauthorized: (denied: Denied, request: FastifyRequest, reply: FastifyReply) => Promise<ApiError>
  }
}

export default fp<AuthenticateOptions>(
  async (app, { tokenPrefix, realm, verify, record }) => {
    const start = `${tokenPrefix}_`

    function unauthorized(denied: Denied, request: FastifyRequest, reply: FastifyReply): Promise<ApiError> {
      request.caller = null
      for (const name of rateHeaders) reply.removeHeader(name)
      return refusal(() => record(denied, request), { start, realm })
    }

    app.decorateRequest('caller', null)
    app.decorate('unauthorized', unauthorized)
    app.addHook('onRequest', (request, reply, done) => {
      // A shared cache must not give one caller's response to another.
      reply.header('cache-control', 'no-store')
      const presented = presentedToken(request.raw.rawHeaders, start)
      if (typeof presented !== 'string') return void unauthorized(presented, request, reply).then(done)
      verify(presented, (error, verdict) => {
        if (error !== null || verdict === undefined) return done(unavailable(error))
        if (!verdict.ok) return void unauthorized(verdict, request, reply).then(done)
        request.caller = verdict.caller
        done()
      })
    })
  },
  { name: 'authenticate', dependencies: ['errors'] },
)

/** Never on a 401: they would distinguish a known key from an unknown one. */
const rateHeaders = ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'retry-after']
