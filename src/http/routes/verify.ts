/**
 * /v1/verify authenticates and counts, and does nothing else. A gateway calls it before it lets a
 * request through. Some gateways send the method, path and body of that request along, so any
 * method is answered, and any path below; a body is not read.
 */
import { METHODS } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Verified } from '../../../schemas/verify.ts'
import { ignoreBody } from './bodies.ts'

/** Fastify adds HEAD to GET. Node makes no request of a CONNECT. */
const otherMethods = METHODS.filter((method) => !['GET', 'HEAD', 'CONNECT'].includes(method))

export async function verifyRoute(app: FastifyInstance) {
  for (const method of otherMethods) {
    // Fastify knows QUERY, but insists on a Content-Type.
    if (method === 'QUERY' || !app.supportedMethods.includes(method))
      app.addHttpMethod(method, { overrideExisting: true })
  }
  app.get(
    '/v1/verify',
    {
      schema: {
        operationId: 'verify',
        summary: 'Authenticate and count a request',
        description:
          'For gateways: does nothing else. The headers tell the service behind who the caller is. Every other method, and every path below, gets the same response; a body is ignored.',
        tags: ['Verification'],
        response: { 200: Verified },
        sends: ['x-key-id', 'x-user-id'],
      },
    },
    verify,
  )
  const alike = { schema: { hide: true, response: { 200: Verified } } }
  app.get('/v1/verify/*', alike, verify)
  // Fastify reads no body of a GET. Without the hook, it stays as fast as it can be.
  for (const url of ['/v1/verify', '/v1/verify/*'])
    app.route({ ...alike, method: otherMethods, url, onRequest: ignoreBody, handler: verify })

  function verify(request: FastifyRequest, reply: FastifyReply) {
    const { id, userId, rateLimitRpm, expiresAt } = request.caller!
    reply
      .header('x-key-id', id)
      .header('x-user-id', userId)
      .send({ key_id: id, user_id: userId, rate_limit_rpm: rateLimitRpm, expires_at: expiresAt })
  }
}
