/**
 * What `obvious` and `caching` share: a SELECT finds the key by its HMAC, each request is counted
 * by a script call, and the response is the same as Latchkey's. They differ in how they find a key.
 */
import { createHmac, randomUUID } from 'node:crypto'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { createApp, harden, listen, required, route } from './answer.ts'

export interface Key {
  id: string
  user_id: string
  rate_limit_rpm: number
  expires_at: number | null
}

type Counting = Redis & { count(name: string, ttlS: number): Promise<number> }

const hashSecret = required('HASH_SECRET')

/**
 * Ten connections, the default of postgres.js, but each in a pool of its own. A shared pool of
 * postgres.js 3.4 slows down: under constant load each query leaves an empty place in the array of
 * its busy connections, and the next query searches that array (src/queue.js). After 80 s that
 * search took a quarter of the CPU time.
 */
const pools = Array.from({ length: 10 }, () => postgres(required('DATABASE_URL'), { max: 1 }))
let next = 0

export async function selectKey(token: string): Promise<Key | undefined> {
  const sql = pools[next]!
  next = (next + 1) % pools.length
  const hash = createHmac('sha256', hashSecret).update(token).digest()
  const [key] = await sql<Key[]>`
    select k.id, k.user_id, k.rate_limit_rpm, extract(epoch from k.expires_at)::float8 as expires_at
    from api_keys k join users u on u.id = k.user_id
    where k.key_hash = ${hash} and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
      and u.deleted_at is null`
  return key
}

export async function serve(name: string, find: (token: string) => Promise<Key | undefined>): Promise<void> {
  const app = createApp()
  const redis = new Redis(required('REDIS_URL')) as Counting
  redis.defineCommand('count', {
    numberOfKeys: 1,
    lua: `
      local count = redis.call('incr', KEYS[1])
      if count == 1 then redis.call('expire', KEYS[1], tonumber(ARGV[1])) end
      return count`,
  })

  app.decorateRequest('key')
  app.addHook('onRequest', async (request, reply) => {
    const { authorization } = request.headers
    if (!authorization?.startsWith('Bearer lk_')) return reply.code(401).send({ error: 'unauthorized' })
    const key = await find(authorization.slice(7))
    if (key === undefined) return reply.code(401).send({ error: 'unauthorized' })

    const minute = Math.floor(Date.now() / 60_000)
    const count = await redis.count(`${name}:${key.id}:${minute}`, 120)
    harden(reply)
      .header('x-request-id', `req_${randomUUID().replaceAll('-', '').slice(0, 26)}`)
      .header('x-ratelimit-limit', key.rate_limit_rpm)
      .header('x-ratelimit-remaining', Math.max(0, key.rate_limit_rpm - count))
      .header('x-ratelimit-reset', (minute + 1) * 60)
    if (count > key.rate_limit_rpm) return reply.code(429).send({ error: 'too many requests' })
    request.setDecorator('key', key)
  })

  app.get('/v1/verify', route, (request, reply) => {
    const { id, user_id, rate_limit_rpm, expires_at } = request.getDecorator<Key>('key')
    reply
      .header('x-key-id', id)
      .header('x-user-id', user_id)
      .send({ key_id: id, user_id, rate_limit_rpm, expires_at })
  })

  await redis.ping()
  await listen(app)
}
