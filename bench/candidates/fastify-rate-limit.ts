/**
 * Fastify's own rate limiter, counting in Redis by Authorization header, set up as its
 * documentation shows. It does not authenticate.
 */
import rateLimit from '@fastify/rate-limit'
import { Redis } from 'ioredis'
import { body, createApp, identify, limit, listen, required, route } from './answer.ts'

const app = createApp()
await app.register(rateLimit, {
  max: limit,
  timeWindow: 60_000,
  redis: new Redis(required('REDIS_URL'), { connectTimeout: 500, maxRetriesPerRequest: 1 }),
  keyGenerator: (request) => request.headers.authorization ?? '',
})

app.get('/v1/verify', route, (_request, reply) => {
  identify(reply).send(body)
})

await listen(app)
