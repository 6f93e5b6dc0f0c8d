/**
 * Counts each authenticated request in its key's minute and refuses those over the limit
 * (docs/api.md, The rate limit). It knows the rule and the headers; `hit` knows where to count.
 */
import fp from 'fastify-plugin'
import { unavailable } from './api-error.ts'
import { type Caller, type Counted, type Denied, overLimit, remainingOf } from './verdict.ts'

export type { Counted } from './verdict.ts'

export interface RateLimitOptions<C extends Caller = Caller> {
  /**
   * Counts one request of the caller. If the count shows that the key has become unusable, the
   * request is denied. An error means that this cannot be decided now; the response is a 503.
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
        request.caller = counted.caller
        reply.header('x-ratelimit-limit', counted.caller.rateLimitRpm)
        reply.header('x-ratelimit-remaining', remainingOf(counted))
        reply.header('x-ratelimit-reset', counted.resetAtS)
        done(overLimit(counted) ?? undefined)
      })
    })
  },
  { name: 'rate-limit', dependencies: ['authenticate'] },
)
