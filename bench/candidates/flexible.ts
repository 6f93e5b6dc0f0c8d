/**
 * rate-limiter-flexible in Redis, by Authorization header, with the headers its documentation
 * shows. It does not authenticate.
 */
import { Redis } from 'ioredis'
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible'
import { body, createApp, identify, limit, listen, required, route } from './answer.ts'

const app = createApp()
const limiter = new RateLimiterRedis({
  storeClient: new Redis(required('REDIS_URL'), { enableOfflineQueue: false }),
  keyPrefix: 'flexible',
  points: limit,
  duration: 60,
})

app.addHook('onRequest', async (request, reply) => {
  try {
    const { remainingPoints, msBeforeNext } = await limiter.consume(request.headers.authorization ?? '')
    reply
      .header('x-ratelimit-limit', limit)
      .header('x-ratelimit-remaining', remainingPoints)
      .header('x-ratelimit-reset', Math.ceil((Date.now() + msBeforeNext) / 1000))
  } catch (error) {
    if (!(error instanceof RateLimiterRes)) throw error
    return reply
      .code(429)
      .header('retry-after', Math.ceil(error.msBeforeNext / 1000))
      .send()
  }
})

app.get('/v1/verify', route, (_request, reply) => {
  identify(reply).send(body)
})

await listen(app)
