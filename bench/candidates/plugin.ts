/** A Fastify application that registers `latchkey`, as the README shows. */
import latchkey from '../../src/package/fastify.ts'
import { body, createApp, identify, listen, required, route } from './answer.ts'

const app = createApp()
await app.register(latchkey, {
  databaseUrl: required('DATABASE_URL'),
  redisUrl: required('REDIS_URL'),
  hashSecret: required('HASH_SECRET'),
})

app.get('/v1/verify', route, (_request, reply) => {
  identify(reply).send(body)
})

await listen(app)
