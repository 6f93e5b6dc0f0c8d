/**
 * GET /v1/verify authenticates and counts, and does nothing else. A gateway calls it before it lets
 * a request through.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ErrorEnvelope } from '../../../schemas/error.ts'
import { Verified } from '../../../schemas/verify.ts'

export async function verifyRoute(app: FastifyInstance) {
  const response = { 200: Verified, '4xx': ErrorEnvelope, '5xx': ErrorEnvelope }
  app.get('/v1/verify', { schema: { response } }, verify)

  function verify(request: FastifyRequest, reply: FastifyReply) {
    const { id, userId, rateLimitRpm, expiresAt } = request.caller!
    reply
      .header('x-key-id', id)
      .header('x-user-id', userId)
      .send({ key_id: id, user_id: userId, rate_limit_rpm: rateLimitRpm, expires_at: expiresAt })
  }
}
