/**
 * `import latchkey from 'latchkey'`: a Fastify plugin that authenticates and counts every request
 * of the scope that registers it. It sends its refusals itself instead of throwing them, so the
 * application's error handler sees only the application's errors.
 */
import { AsyncResource } from 'node:async_hooks'
import type { Server } from 'node:http'
import type { FastifyInstance, FastifyPluginAsync } from 'fastify'
import fp from 'fastify-plugin'
import { type Caller, presentedToken, remainingOf } from '../../plugins/verdict.ts'
import type { Config } from '../config.ts'
import { rememberAddresses } from '../http/peer-address.ts'
import { refusedRequest } from '../http/routes/actor.ts'
import { newId } from '../rules/id.ts'
import { type Checks, callerOf, openChecks } from './checks.ts'
import { configOf, type LatchkeyOptions, startError } from './options.ts'

export type { Caller } from '../../plugins/verdict.ts'
export type { LatchkeyOptions } from './options.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** Of the scope that registers the plugin. */
    latchkey: Pick<Checks, 'metrics'>
  }
  interface FastifyRequest {
    /** Who sent the request; null only where no route is guarded. */
    caller: Caller | null
  }
}

export interface PluginOptions extends LatchkeyOptions {
  /** Of a scope with a prefix: false if another scope with this prefix has a not-found handler. */
  unknownRoutes?: boolean | undefined
}

const latchkey: FastifyPluginAsync<PluginOptions> = async (app, options) => {
  const config = configOf(options, ['prefix', 'logLevel', 'logSerializers', 'unknownRoutes'])
  if (app.hasRequestDecorator('caller') || app.hasDecorator('latchkey'))
    throw new Error(
      'latchkey: this scope has a request.caller already; register it once, around all routes that it should guard',
    )
  const { metrics, check, record, answer, start, format } = await openWith(app, config, options.patience)
  app.decorate('latchkey', { metrics })
  app.decorateRequest('caller', null)
  rememberAddresses(app.server)

  app.addHook('onRequest', (request, reply, done) => {
    let requestId = ''
    check(
      presentedToken(request.raw.rawHeaders, start),
      (denied) => {
        // Our own id, because the application may take request.id from the client.
        requestId = newId('req_')
        return record({ ...refusedRequest(request, format), requestId }, denied)
      },
      inOwnContext((error, counted) => {
        if (error !== null) {
          const { status, headers, body } = answer(error, counted, requestId || newId('req_'))
          try {
            return void reply.code(status).headers(headers).serializer(asItIs).send(body)
          } catch (fault) {
            // The application has set a header that cannot be sent. We are not called by Fastify here, so
            // it would not catch this.
            reply.code(500)
            return done(fault as Error)
          }
        }
        request.caller = callerOf(counted!)
        reply.header('x-ratelimit-limit', counted!.caller.rateLimitRpm)
        reply.header('x-ratelimit-remaining', remainingOf(counted!))
        reply.header('x-ratelimit-reset', counted!.resetAtS)
        done()
      }),
    )
  })
  if (app.prefix !== '' && options.unknownRoutes !== false) guardUnknownRoutes(app)
}

/** The application may have set a serializer. */
const asItIs = (body: string) => body

/**
 * Many requests are decided in one event, in the async context of the first of them. The application
 * goes on in that of its own: it may hold the user, a transaction or a trace. AsyncResource.bind does
 * the same, but takes 10 µs in Node 20.
 */
function inOwnContext<A extends unknown[]>(run: (...args: A) => void): (...args: A) => void {
  const context = new AsyncResource('latchkey')
  return (...args) => context.runInAsyncScope(run, undefined, ...args)
}

/** Of Fastify's time limit for a plugin; after it, Fastify reports a fault that names no cause. */
const startShare = 0.7
/** Even half as long again, as with several hosts, ends before that: then the error says what Postgres did. */
const databaseShare = 0.4

/** What opens too late, when Fastify has given up, is closed again. */
function openWith(app: FastifyInstance, config: Readonly<Config>, patience?: number): Promise<Checks> {
  const late = new AbortController()
  const { signal } = late
  const limitMs = app.initialConfig.pluginTimeout ?? 0
  const giveUp = () => late.abort(new Error(startTooLong))
  const timer = limitMs > 0 ? setTimeout(giveUp, limitMs * startShare) : undefined
  const databaseWaitMs = limitMs > 0 ? limitMs * databaseShare : Infinity
  const opening = openChecks(config, app.log, { patience, signal, databaseWaitMs })
    .then(async (checks) => {
      if (!signal.aborted) return checks
      await checks.close()
      throw startError(signal.reason)
    })
    .finally(() => clearTimeout(timer))
  app.addHook('onClose', () =>
    opening.then(
      (checks) => checks.close(),
      () => {},
    ),
  )
  return opening
}

const startTooLong =
  'the start takes longer than Fastify allows a plugin: another process may be migrating the database; start again, or set pluginTimeout'

/** By server, the prefixes whose unknown routes are guarded. */
const guardedPrefixes = new WeakMap<Server, Set<string>>()

/**
 * Under a prefix, Fastify runs the hooks of a scope for unknown routes only if the scope has a
 * handler for them. A prefix can have one, even if several scopes have that prefix; a second one
 * would end the process.
 */
function guardUnknownRoutes(app: FastifyInstance) {
  const prefixes = guardedPrefixes.get(app.server) ?? new Set()
  guardedPrefixes.set(app.server, prefixes)
  if (prefixes.has(app.prefix)) return
  prefixes.add(app.prefix)
  try {
    // Without arguments: Fastify's own 404. Its types do not know this form.
    ;(app.setNotFoundHandler as () => unknown).call(app)
  } catch {
    // The application has set one of its own.
  }
}

export default fp(latchkey, { fastify: '5.x', name: 'latchkey' })
