// In each minute a key admits exactly its limit, and every authenticated request counts.
import t from 'tap'
import { type Answer, type Ask, type Instance, makeCaller, makeKey, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { countKeys } from './count-keys.ts'
import { expectError, expectRated } from './expect-error.ts'
import { inOneMinute, resetOf } from './one-minute.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const other = await startInstance(t, services)
const redis = services.connectRedis()
const sql = openDatabase(t, services.databaseUrl)

const verify = (token: string, { ask }: Instance = instance) => ask('GET', '/v1/verify', { token })
const remainingOf = ({ headers }: Answer) => Number(headers.get('x-ratelimit-remaining'))
const statusesOf = (answers: Answer[]) => answers.map(({ status }) => status)
const countdownFrom = (remaining: number) => Array.from({ length: remaining }, (_, i) => remaining - 1 - i)

async function inTurn(count: number, ask: () => Promise<Answer>): Promise<Answer[]> {
  const answers = []
  for (let asked = 0; asked < count; asked++) answers.push(await ask())
  return answers
}

t.test('a limit of 3 admits 3 requests in a minute, and the next is 429', async (t) => {
  const { answers, beforeMs, afterMs } = await inOneMinute(async () => {
    const { token } = await makeCaller(instance, { rateLimitRpm: 3 })
    const answers = await inTurn(4, () => verify(token))
    const beforeMs = Date.now()
    answers.push(await verify(token))
    return { answers, beforeMs, afterMs: Date.now() }
  })
  t.same(statusesOf(answers), [200, 200, 200, 429, 429])
  t.same(answers.map(remainingOf), [2, 1, 0, 0, 0])
  for (const { headers } of answers) t.equal(headers.get('x-ratelimit-limit'), '3')
  t.equal(answers[0]!.headers.get('retry-after'), null)

  const last = answers.at(-1)!
  expectError(t, last, 'rate_limit_exceeded')
  const resetS = resetOf(last)
  t.equal(resetS % 60, 0)
  t.ok(resetS > beforeMs / 1000 - 1 && resetS <= afterMs / 1000 + 61, `${resetS} is the end of this minute`)
  const retryAfterS = Number(last.headers.get('retry-after'))
  t.ok(afterMs / 1000 + retryAfterS >= resetS, 'a client that waits for Retry-After is past the reset')
  t.ok(beforeMs / 1000 + retryAfterS < resetS + 1.1, 'but not by much')
  t.ok(retryAfterS >= 1 && retryAfterS <= 60)
})

t.test('the count goes on when the limit changes within the minute', async (t) => {
  const { answers } = await inOneMinute(async () => {
    const admin = await makeCaller(instance)
    const { id, token } = await makeKey(instance, { userId: admin.userId, rateLimitRpm: 3 })
    const answers = await inTurn(4, () => verify(token))
    for (const [rate_limit_rpm, requests] of [
      [7, 2],
      [2, 1],
      [8, 2],
    ] as const) {
      await instance.ask('PATCH', `/v1/keys/${id}`, { token: admin.token, json: { rate_limit_rpm } })
      answers.push(...(await inTurn(requests, () => verify(token))))
    }
    return { answers }
  })
  t.same(
    answers.map(
      (answer) => `${answer.status} ${answer.headers.get('x-ratelimit-limit')} ${remainingOf(answer)}`,
    ),
    ['200 3 2', '200 3 1', '200 3 0', '429 3 0', '200 7 2', '200 7 1', '429 2 0', '200 8 0', '429 8 0'],
  )
})

t.test('each key has its own count', async (t) => {
  const { answers } = await inOneMinute(async () => {
    const { token, userId } = await makeCaller(instance, { rateLimitRpm: 1 })
    const sibling = await makeKey(instance, { userId, rateLimitRpm: 2 })
    const answers = await inTurn(2, () => verify(token))
    return { answers: [...answers, ...(await inTurn(3, () => verify(sibling.token)))] }
  })
  t.same(statusesOf(answers), [200, 429, 200, 200, 429])
})

t.test('two instances share the count, in turn and at once', async (t) => {
  const { answers } = await inOneMinute(async () => {
    const { token } = await makeCaller(instance, { rateLimitRpm: 60 })
    const answers: Answer[] = []
    for (let i = 0; i < 10; i++) answers.push(await verify(token, i % 2 ? instance : other))
    const atOnce = Array.from({ length: 100 }, (_, i) => verify(token, i % 2 ? instance : other))
    return { answers: [...answers, ...(await Promise.all(atOnce))] }
  })
  const admitted = answers.filter(({ status }) => status === 200)
  t.same(answers.slice(0, 10).map(remainingOf), countdownFrom(60).slice(0, 10))
  t.same(
    admitted.map(remainingOf).sort((a, b) => b - a),
    countdownFrom(60),
  )
  for (const answer of answers)
    if (!admitted.includes(answer)) t.same([answer.status, remainingOf(answer)], [429, 0])
})

type Request = [status: number, method: string, path: string, ask?: Ask]
const json = { 'content-type': 'application/json' }

t.test('every request counts once, and over the limit each is a 429 that does nothing', async (t) => {
  const admin = await makeCaller(instance)
  const { requests, answers, counted, created, sibling } = await inOneMinute(async () => {
    const target = await makeKey(instance, { userId: admin.userId, name: 'before' })
    const one = `/v1/keys/${target.id}`
    const requests: Request[] = [
      [200, 'GET', '/v1/verify'],
      [200, 'GET', '/v1/keys'],
      [200, 'GET', one],
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
      [404, 'PATCH', '/v1/keys/apk_0', { json: { name: 'x' } }],
      [404, 'DELETE', '/v1/keys/apk_0'],
    ]
    const { id, token } = await makeKey(instance, { userId: admin.userId, rateLimitRpm: requests.length })
    const changes: Request[] = [
      [429, 'PATCH', one, { json: { name: 'after' } }],
      [429, 'DELETE', one],
    ]
    const before = await countKeys(sql, admin.userId)
    const answers: Answer[] = []
    for (const [, method, path, ask] of [...requests, ...changes, ...requests]) {
      answers.push(await instance.ask(method, path, { token, ...ask }))
    }
    return {
      requests,
      answers,
      counted: await redis.get(`rl:{${id}}:${resetOf(answers[0]!) / 60 - 1}`),
      created: (await countKeys(sql, admin.userId)) - before,
      sibling: await instance.ask('GET', one, { token: admin.token }),
    }
  })
  const expected = requests.map(([status]) => status)
  t.same(statusesOf(answers), [...expected, ...Array(requests.length + 2).fill(429)])
  t.same(answers.map(remainingOf), [...countdownFrom(requests.length), ...Array(requests.length + 2).fill(0)])
  for (const answer of answers) expectRated(t, answer)
  t.equal(counted, String(answers.length))
  t.equal(created, 1)
  t.match(sibling.body, { name: 'before', revoked_at: null })
})

t.test('Redis holds plain integers that expire, and nothing else', async (t) => {
  const { id, token } = await makeCaller(instance)
  const counter = `rl:{${id}}:${resetOf(await verify(token)) / 60 - 1}`
  t.equal(await redis.get(counter), '1')
  const ttlS = await redis.ttl(counter)
  t.ok(ttlS > 60 && ttlS <= 120, `${ttlS} s: dashboards can read the last full minute`)
  for (const name of await redis.keys('*')) {
    t.match(name, /^rl:\{apk_[0-9A-Za-z]+\}:([0-9]+|v)$/)
    // A version is confirmed a moment after the first request with its key.
    await until(`${name} is plain`, async () => /^[0-9]+$/.test((await redis.get(name)) ?? '0'))
  }
})

t.test('what was counted in the last minute does not count in this one', async (t) => {
  const { answers } = await inOneMinute(async () => {
    const { id, token } = await makeCaller(instance, { rateLimitRpm: 2 })
    const first = await verify((await makeCaller(instance)).token)
    await redis.set(`rl:{${id}}:${resetOf(first) / 60 - 2}`, 99)
    return { answers: [first, await verify(token)] }
  })
  t.equal(answers[1]!.status, 200)
  t.equal(remainingOf(answers[1]!), 1)
})
