/**
 * The floor: Fastify sending the same bytes without looking at the request. Everything above it is
 * what Latchkey adds.
 */
import { body, createApp, identify, limit, listen, route } from './answer.ts'

const app = createApp()
const reset = Math.ceil(Date.now() / 60_000) * 60

app.get('/v1/verify', route, (_request, reply) => {
  identify(reply)
    .header('x-ratelimit-limit', limit)
    .header('x-ratelimit-remaining', limit - 1)
    .header('x-ratelimit-reset', reset)
    .send(body)
})

await listen(app)
