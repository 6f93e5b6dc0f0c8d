/**
 * What one would write first, and what Latchkey promises, less the audit log: for each request one SELECT by the key's HMAC and one
 * script call that counts. Without a cache, so a revocation holds at once here too.
 */
import { createHmac, randomUUID } from 'node:crypto'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { createApp, harden, listen, required, route } from './answer.ts'

interface Key {
  id: string
  user_id: string
  rate_limit_rpm: number
  expires_at: number | null
}

type Counting = Redis & { count(name: string, ttlS: number): Promise<number> }

const app = createApp()
const hashSecret = required('HASH_SECRET')
const sql = postgres(required('DATABASE_URL'))
const redis = new Redis(required('REDIS_URL')) as Counting
redis.defineCommand('count', {
  numberOfKeys: 1,
  lua: `
    local count = redis.call('incr', KEYS[1])
    if count == 1 then redis.call('expire', KEYS[1], tonumber(ARGV[1])) end
    return count`,
})

const keys = new WeakMap<object, Key>()

app.addHook('onRequest', async (request, reply) => {
  const { authorization } = request.headers
  if (!authorization?.startsWith('Bearer lk_')) return reply.code(401).send({ error: 'unauthorized' })
  const hash = createHmac('sha256', hashSecret).update(authorization.slice(7)).digest()
  const [key] = await sql<Key[]>`
    select k.id, k.user_id, k.rate_limit_rpm, extract(epoch from k.expires_at)::float8 as expires_at
    from api_keys k join users u on u.id = k.user_id
    where k.key_hash = ${hash} and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
      and u.deleted_at is null`
  if (key === undefined) return reply.code(401).send({ error: 'unauthorized' })

  const minute = Math.floor(Date.now() / 60_000)
  const count = await redis.count(`obvious:${key.id}:${minute}`, 120)
  harden(reply)
    .header('x-request-id', `req_${randomUUID().replaceAll('-', '').slice(0, 26)}`)
    .header('x-ratelimit-limit', key.rate_limit_rpm)
    .header('x-ratelimit-remaining', Math.max(0, key.rate_limit_rpm - count))
    .header('x-ratelimit-reset', (minute + 1) * 60)
  if (count > key.rate_limit_rpm) return reply.code(429).send({ error: 'too many requests' })
  keys.set(request, key)
})

app.get('/v1/verify', route, (request, reply) => {
  const { id, user_id, rate_limit_rpm, expires_at } = keys.get(request)!
  reply
    .header('x-key-id', id)
    .header('x-user-id', user_id)
    .send({ key_id: id, user_id, rate_limit_rpm, expires_at })
})

await redis.ping()
await listen(app)
