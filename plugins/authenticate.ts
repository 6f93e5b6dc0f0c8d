/**
 * Lets a request pass only with a usable API key (spec section 5). It knows how a key is presented;
 * `verify` knows how to look one up. Every refusal is the same 401, sent once `record` has stored
 * the reason.
 *
 * Runs in onRequest: before the body is read, and for unknown routes too, so that nobody without a
 * key learns more.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import type { RefusalReason } from '../schemas/refusal.ts'
import { ApiError, unavailable } from './api-error.ts'

/** Who sent the request. A host application may add members of its own. */
export interface Caller {
  readonly id: string
  readonly userId: string
  /** Requests per minute. */
  readonly rateLimitRpm: number
  /** Unix seconds, or null. */
  readonly expiresAt: number | null
}

export interface Denied {
  readonly ok: false
  readonly reason: RefusalReason
  /** The key and its owner, if the token is known. */
  readonly keyId?: string
  readonly userId?: string
}
export type Verdict<C extends Caller = Caller> = { readonly ok: true; readonly caller: C } | Denied

/** `C`: what the host application knows about a caller. */
export interface AuthenticateOptions<C extends Caller = Caller> {
  /** The token's fixed beginning, without the underscore. */
  tokenPrefix: string
  /** What the 401 names in WWW-Authenticate (RFC 9110, 11.6.1). */
  realm?: string
  /**
   * Whose token is this? A callback and not a promise, so that a request with a cached key
   * allocates nothing: it may be called at once. An error means that nobody can tell now; the
   * response is a 503.
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
  async (app, { tokenPrefix, realm = 'latchkey', verify, record }) => {
    const start = `${tokenPrefix}_`

    async function unauthorized(
      denied: Denied,
      request: FastifyRequest,
      reply: FastifyReply,
    ): Promise<ApiError> {
      request.caller = null
      for (const name of rateHeaders) reply.removeHeader(name)
      try {
        await record(denied, request)
      } catch (cause) {
        return cause instanceof ApiError ? cause : unavailable(cause)
      }
      return new ApiError('unauthorized', {
        param: 'authorization',
        suggestion: `Send \`Authorization: Bearer ${start}...\` and check that the key is active.`,
        headers: { 'www-authenticate': `Bearer realm="${realm}"` },
      })
    }

    app.decorateRequest('caller', null)
    app.decorate('unauthorized', unauthorized)
    app.addHook('onRequest', (request, reply, done) => {
      // A shared cache must not give one caller's response to another.
      reply.header('cache-control', 'no-store')
      const presented = presentedToken(request)
      if (typeof presented !== 'string') return void unauthorized(presented, request, reply).then(done)
      if (!presented.startsWith(start)) return void unauthorized(wrongPrefix, request, reply).then(done)
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

const missingHeader: Denied = { ok: false, reason: 'missing_header' }
const wrongScheme: Denied = { ok: false, reason: 'wrong_scheme' }
const wrongPrefix: Denied = { ok: false, reason: 'wrong_prefix' }

/** `Bearer`, exactly one space, and one token68 (RFC 9110, 11.2): no quotes, nothing after it. */
const credentials = /^Bearer ([A-Za-z0-9\-._~+/]+=*)$/

/**
 * The token of the one Authorization header. Node's `headers` hides a second one, so the raw list
 * is read.
 */
function presentedToken({ raw: { rawHeaders } }: FastifyRequest): string | Denied {
  let value: string | undefined
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    if (name.length !== 13 || (name !== 'Authorization' && name.toLowerCase() !== 'authorization')) continue
    if (value !== undefined) return wrongScheme
    value = rawHeaders[i + 1]!
  }
  if (value === undefined) return missingHeader
  return credentials.exec(value)?.[1] ?? wrongScheme
}
