/**
 * `import latchkey from 'latchkey'`: a Fastify plugin that authenticates and counts every request
 * of the scope that registers it. It sends its refusals itself instead of throwing them, so the
 * application's error handler sees only the application's errors.
 */
import type { FastifyInstance, FastifyPluginAsync } from 'fastify'
import fp from 'fastify-plugin'
import { type Caller, presentedToken, remainingOf } from '../../plugins/verdict.ts'
import { refusedRequest } from '../http/routes/actor.ts'
import { newId } from '../rules/id.ts'
import { callerOf, openChecks } from './checks.ts'
import { configOf, type LatchkeyOptions } from './options.ts'

export type { Caller } from '../../plugins/verdict.ts'
export type { LatchkeyOptions } from './options.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Who sent the request; null only where no route is guarded. */
    caller: Caller | null
  }
}

const latchkey: FastifyPluginAsync<LatchkeyOptions> = async (app, options) => {
  const config = configOf(options, ['prefix', 'logLevel', 'logSerializers'])
  const { check, record, answer, start, format, close } = await openChecks(config, app.log, options.patience)
  app.addHook('onClose', close)
  app.decorateRequest('caller', null)

  app.addHook('onRequest', (request, reply, done) => {
    let requestId = ''
    check(
      presentedToken(request.raw.rawHeaders, start),
      (denied) => {
        // Our own id, because the application may take request.id from the client.
        requestId = newId('req_')
        return record({ ...refusedRequest(request, format), requestId }, denied)
      },
      (error, counted) => {
        if (error !== null) {
          const { status, headers, body } = answer(error, counted, requestId || newId('req_'))
          return void reply.code(status).headers(headers).send(body)
        }
        request.caller = callerOf(counted!)
        reply.header('x-ratelimit-limit', counted!.caller.rateLimitRpm)
        reply.header('x-ratelimit-remaining', remainingOf(counted!))
        reply.header('x-ratelimit-reset', counted!.resetAtS)
        done()
      },
    )
  })
  if (app.prefix !== '') guardUnknownRoutes(app)
}

/**
 * Under a prefix, Fastify runs the hooks of a scope for unknown routes only if the scope has a
 * handler for them.
 */
function guardUnknownRoutes(app: FastifyInstance) {
  try {
    // Without arguments: Fastify's own 404. Its types do not know this form.
    ;(app.setNotFoundHandler as () => unknown).call(app)
  } catch {
    // The application has set one of its own.
  }
}

export default fp(latchkey, { fastify: '5.x', name: 'latchkey' })
