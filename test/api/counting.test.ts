// What counts: every authenticated request, once, in a counter that dashboards may read (spec 8.2 and 8.3).
import t from 'tap'
import { type Answer, type Instance, makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectRated } from './expect-error.ts'
import { inOneMinute, resetOf } from './one-minute.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const redis = services.connectRedis()

const remainingOf = ({ headers }: Answer) => Number(headers.get('x-ratelimit-remaining'))
const counterOf = (id: string, answer: Answer) => `rl:{${id}}:${resetOf(answer) / 60 - 1}`

t.test('every kind of request counts once, whatever it is answered', async (t) => {
  const json = { 'content-type': 'application/json' }
  const asked: [status: number, method: string, path: string, ask?: Parameters<Instance['ask']>[2]][] = [
    [200, 'GET', '/v1/keys'],
    [201, 'POST', '/v1/keys', { json: { name: 'x' } }],
    [400, 'POST', '/v1/keys', { json: {} }],
    [400, 'POST', '/v1/keys', { headers: json, body: '{"name":' }],
    [400, 'GET', '/v1/keys?limit=0'],
    [404, 'GET', '/v1/keys/apk_0'],
    [404, 'GET', '/v1/keys/%zz'],
    [404, 'GET', `/v1/keys/${'a'.repeat(5000)}`],
    [404, 'GET', '/nope'],
    [404, 'POST', '/v1/nope', { json: {} }],
    [404, 'GET', '/%'],
    [405, 'PUT', '/v1/keys', { json: {} }],
    [405, 'OPTIONS', '/v1/keys'],
    [413, 'POST', '/v1/keys', { headers: json, body: ' '.repeat(20_000) }],
    [415, 'POST', '/v1/keys', { headers: { 'content-type': 'text/plain' }, body: 'x' }],
    [404, 'DELETE', '/v1/keys/apk_0'],
    [404, 'PATCH', '/v1/keys/apk_0', { json: { name: 'x' } }],
    [200, 'GET', '/v1/verify'],
  ]
  const { answers, counted } = await inOneMinute(async () => {
    const { id, token } = await makeCaller(instance, { rateLimitRpm: asked.length })
    const answers = []
    for (const [, method, path, ask] of asked)
      answers.push(await instance.ask(method, path, { token, ...ask }))
    // And over the limit each is a 429, whatever else is wrong with it, which counts too.
    for (const [, method, path, ask] of asked)
      answers.push(await instance.ask(method, path, { token, ...ask }))
    return { answers, counted: await redis.get(counterOf(id, answers[0]!)) }
  })
  const of = (answer: Answer, i: number) => [
    asked[i]![1],
    asked[i]![2].slice(0, 30),
    answer.status,
    remainingOf(answer),
  ]
  t.same(
    answers.slice(0, asked.length).map(of),
    asked.map(([status, method, path], i) => [method, path.slice(0, 30), status, asked.length - 1 - i]),
  )
  t.same(
    answers.slice(asked.length).map(of),
    asked.map(([, method, path]) => [method, path.slice(0, 30), 429, 0]),
  )
  t.equal(counted, String(2 * asked.length))
  for (const answer of answers) expectRated(t, answer)
})

t.test(
  'the counter in Redis is a plain integer of the requests sent, kept for two minutes at most',
  async (t) => {
    const { counted, ttlS, type } = await inOneMinute(async () => {
      const { id, token } = await makeCaller(instance, { rateLimitRpm: 5 })
      const answers = await Promise.all(
        Array.from({ length: 9 }, () => instance.ask('GET', '/v1/verify', { token })),
      )
      const key = counterOf(id, answers[0]!)
      return {
        answers,
        counted: await redis.get(key),
        ttlS: await redis.ttl(key),
        type: await redis.type(key),
      }
    })
    t.equal(type, 'string')
    t.equal(counted, '9')
    // It outlives its minute, so that dashboards can read the last full one.
    t.ok(ttlS > 60 && ttlS <= 120, `TTL ${ttlS}`)
  },
)

t.test('Redis holds counters and versions of keys and nothing else', async (t) => {
  const { token } = await makeCaller(instance)
  await instance.ask('GET', '/v1/verify', { token })
  const names = await redis.keys('*')
  t.ok(names.length > 0)
  t.same(
    names.filter((name) => !/^rl:\{apk_[0-9A-Za-z]+\}:([0-9]+|v)$/.test(name)),
    [],
  )
  const values = await redis.mget(names)
  t.same(
    values.filter((value) => value !== null && !/^[0-9]+$/.test(value)),
    [],
  )
})
