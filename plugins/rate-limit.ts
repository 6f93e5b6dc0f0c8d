/**
 * Counts each authenticated request in its key's minute and refuses those over the limit (spec
 * section 8). It knows the rule and the headers; `hit` knows where to count.
 */
import fp from 'fastify-plugin'
import { ApiError, unavailable } from './api-error.ts'
import type { Caller, Denied } from './authenticate.ts'

export interface Counted<C extends Caller = Caller> {
  readonly ok: true
  /**
   * The caller as of this count, which is newer than the one authenticated if the key has changed
   * since.
   */
  readonly caller: C
  /** This request's number in the minute, from 1. */
  readonly count: number
  /**
   * The counting server's clock, Unix milliseconds: window, reset and Retry-After all come from it.
   */
  readonly nowMs: number
  /** When the minute ends, Unix seconds. */
  readonly resetAtS: number
}

export interface RateLimitOptions<C extends Caller = Caller> {
  /**
   * Counts one request of the caller. If the count shows that the key has become unusable, the
   * request is denied. An error means that nobody can tell now; the response is a 503.
   *
   * A method, so that TypeScript accepts one that takes the host's own `C`: the caller always comes
   * from `verify`.
   */
  hit(caller: C, done: (error: Error | null, counted?: Counted<C> | Denied) => void): void
}

export default fp<RateLimitOptions>(
  async (app, { hit }) => {
    app.addHook('onRequest', (request, reply, done) => {
      hit(request.caller!, (error, counted) => {
        if (error !== null || counted === undefined) return done(unavailable(error))
        if (!counted.ok) return void app.unauthorized(counted, request, reply).then(done)
        const { caller, count, nowMs, resetAtS } = counted
        const limit = caller.rateLimitRpm
        request.caller = caller
        reply.header('x-ratelimit-limit', limit)
        reply.header('x-ratelimit-remaining', count < limit ? limit - count : 0)
        reply.header('x-ratelimit-reset', resetAtS)
        if (count <= limit) return done()
        const retryAfterS = Math.ceil(resetAtS - nowMs / 1000)
        done(new ApiError('rate_limit_exceeded', { headers: { 'retry-after': String(retryAfterS) } }))
      })
    })
  },
  { name: 'rate-limit', dependencies: ['authenticate'] },
)
