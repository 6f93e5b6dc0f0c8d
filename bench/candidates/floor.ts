/** Fastify sending the bytes of Latchkey without looking at the request, on a server of one kind. */
import type { ServerOptions } from 'node:http'
import { body, createApp, identify, limit, listen, route } from './answer.ts'

export async function serveFloor(http: ServerOptions = {}): Promise<void> {
  const app = createApp(http)
  const reset = Math.ceil(Date.now() / 60_000) * 60
  app.get('/v1/verify', route, (_request, reply) => {
    identify(reply)
      .header('x-ratelimit-limit', limit)
      .header('x-ratelimit-remaining', limit - 1)
      .header('x-ratelimit-reset', reset)
      .send(body)
  })
  await listen(app)
}
