// Each authenticated request is counted once and gets the rate headers. Those over the limit are
// refused.
import fc from 'fast-check'
import type { LightMyRequestResponse } from 'fastify'
import t, { type Test } from 'tap'
import authenticate, { type Caller, type Denied } from '../../plugins/authenticate.ts'
import rateLimit, { type RateLimitOptions } from '../../plugins/rate-limit.ts'
import unknownRoute from '../../plugins/unknown-route.ts'
import { resetAtSOf } from '../../src/rules/window.ts'
import { caller, envelopeOf, otherApp } from './other-app.ts'

const nowMs = 1_767_225_612_345 // 12.345 s into a minute

function limited(t: Test, hit: RateLimitOptions['hit']) {
  const { app } = otherApp(t)
  const recorded: Denied[] = []
  let served = 0
  app.register(async (scope) => {
    scope.register(authenticate, {
      tokenPrefix: 'ok',
      verify: (token, done) =>
        done(null, token === 'ok_good' ? { ok: true, caller } : { ok: false, reason: 'revoked' }),
      record: async (refused) => void recorded.push(refused),
    })
    scope.register(rateLimit, { hit })
    scope.register(unknownRoute)
    scope.get('/', async (request) => {
      served++
      return { caller: request.caller }
    })
    scope.post('/', { schema: { body: { type: 'object' } } }, async () => 'never')
    scope.get('/fault', async () => {
      throw new Error('fault')
    })
  })
  const ask = (url = '/', token = 'ok_good') =>
    app.inject({ url, headers: { authorization: `Bearer ${token}` } })
  return { app, ask, recorded, served: () => served }
}

/** Always gives this count, limit and time. */
const counting =
  (number: number, limit = 10, atMs = nowMs): RateLimitOptions['hit'] =>
  (caller, done) =>
    done(null, {
      ok: true,
      caller: { ...caller, rateLimitRpm: limit },
      count: number,
      nowMs: atMs,
      resetAtS: resetAtSOf(atMs),
    })

const rateHeaders = ({ headers }: LightMyRequestResponse) => {
  const of = (name: string) => (headers[name] === undefined ? undefined : Number(headers[name]))
  return {
    limit: of('x-ratelimit-limit'),
    remaining: of('x-ratelimit-remaining'),
    reset: of('x-ratelimit-reset'),
    retryAfter: of('retry-after'),
  }
}
const none = { limit: undefined, remaining: undefined, reset: undefined, retryAfter: undefined }

t.test('a request within the limit passes and gets what remains', async (t) => {
  const answer = await limited(t, counting(3)).ask()
  t.equal(answer.statusCode, 200)
  t.strictSame(rateHeaders(answer), { limit: 10, remaining: 7, reset: 1_767_225_660, retryAfter: undefined })
})

t.test(
  'the last request of the limit passes, and the next is a 429 that says when to come back',
  async (t) => {
    const last = await limited(t, counting(10)).ask()
    t.equal(last.statusCode, 200)
    t.equal(rateHeaders(last).remaining, 0)
    const { ask, served } = limited(t, counting(11))
    const over = await ask()
    t.equal(over.statusCode, 429)
    t.strictSame(rateHeaders(over), { limit: 10, remaining: 0, reset: 1_767_225_660, retryAfter: 48 })
    t.match(envelopeOf(over.body), { type: 'rate_limit_error', code: 'rate_limit_exceeded', param: '' })
    t.equal(served(), 0)
  },
)

t.test('status and headers follow from limit, count and time alone', async () => {
  let hit = counting(1)
  const { ask } = limited(t, (caller, done) => hit(caller, done))
  const limit = fc.integer({ min: 1, max: 1_000_000_000 })
  const number = fc.oneof(fc.integer({ min: 1, max: 2_000_000_000 }), fc.integer({ min: -2, max: 2 }))
  const atMs = fc.oneof(
    fc.integer({ min: 0, max: 4_102_444_799_999 }),
    fc.constantFrom(60_000, 59_999, 119_001, 1_767_225_600_000, 1_767_225_659_999),
  )
  await fc.assert(
    fc.asyncProperty(limit, number, atMs, fc.boolean(), async (limit, n, atMs, nearLimit) => {
      const number = nearLimit ? Math.max(1, limit + (n % 3)) : Math.max(1, n)
      hit = counting(number, limit, atMs)
      const answer = await ask()
      const { remaining, reset, retryAfter, limit: sentLimit } = rateHeaders(answer)
      const over = number > limit
      const leftS = reset! - atMs / 1000
      const rightReset = reset! % 60 === 0 && leftS > 0 && leftS <= 60
      const rightRetry = over
        ? retryAfter! >= leftS && retryAfter! < leftS + 1 && Number.isInteger(retryAfter)
        : retryAfter === undefined
      return (
        answer.statusCode === (over ? 429 : 200) &&
        sentLimit === limit &&
        remaining === Math.max(0, limit - number) &&
        rightReset &&
        rightRetry
      )
    }),
    { numRuns: 300 },
  )
})

t.test(
  'every authenticated request is counted once and gets the rate headers, whatever its status',
  async (t) => {
    const hits: Caller[] = []
    const { app, ask } = limited(t, (caller, done) => {
      hits.push(caller)
      counting(hits.length)(caller, done)
    })
    const headers = { authorization: 'Bearer ok_good' }
    const answers = [
      await ask('/'),
      await ask('/nowhere'),
      await ask('/fault'),
      await app.inject({
        method: 'POST',
        url: '/',
        headers: { ...headers, 'content-type': 'application/json' },
        payload: '{',
      }),
      await app.inject({ method: 'POST', url: '/', headers, payload: [] }),
    ]
    t.strictSame(
      answers.map(({ statusCode }) => statusCode),
      [200, 404, 500, 400, 400],
    )
    t.strictSame(
      answers.map((answer) => rateHeaders(answer).remaining),
      [9, 8, 7, 6, 5],
    )
    t.strictSame(hits, [caller, caller, caller, caller, caller])
  },
)

t.test('a request without a usable key is not counted and gets no rate headers', async (t) => {
  let counted = 0
  const { ask } = limited(t, () => void counted++)
  const answer = await ask('/', 'ok_bad')
  t.equal(answer.statusCode, 401)
  t.strictSame(rateHeaders(answer), none)
  t.equal(counted, 0)
})

t.test('the route gets the caller as of the count', async (t) => {
  const newer = { ...caller, rateLimitRpm: 99, expiresAt: 2_000_000_000 }
  const { ask } = limited(t, (_caller, done) =>
    done(null, { ok: true, caller: newer, count: 1, nowMs, resetAtS: 0 }),
  )
  t.strictSame((await ask()).json(), { caller: newer })
})

t.test('a key that the count finds unusable gets the usual 401, and its reason is recorded', async (t) => {
  const refused: Denied = { ok: false, reason: 'expired', keyId: 'apk_1', userId: 'usr_1' }
  const { ask, recorded, served } = limited(t, (_caller, done) => done(null, refused))
  const [late, early] = [await ask(), await ask('/', 'ok_bad')]
  t.strictSame(recorded[0], refused)
  t.equal(served(), 0)
  t.strictSame(rateHeaders(late), none)
  t.strictSame(
    Object.keys(late.headers),
    Object.keys(early.headers),
    'with the same headers in the same order',
  )
  const withoutId = (body: string) => ({ ...envelopeOf(body), request_id: '' })
  t.strictSame(withoutId(late.body), withoutId(early.body))
})

t.test('a route that refuses its caller after all removes the rate headers', async (t) => {
  const { app } = otherApp(t)
  const recorded: Denied[] = []
  app.register(authenticate, {
    tokenPrefix: 'ok',
    verify: (_token, done) => done(null, { ok: true, caller }),
    record: async (refused) => void recorded.push(refused),
  })
  app.register(rateLimit, { hit: counting(1) })
  app.register(async (scope) => {
    scope.get('/', async (request, reply) => {
      reply.header('retry-after', 9)
      throw await app.unauthorized({ ok: false, reason: 'owner_deleted' }, request, reply)
    })
  })
  const answer = await app.inject({ url: '/', headers: { authorization: 'Bearer ok_good' } })
  t.equal(answer.statusCode, 401)
  t.strictSame(rateHeaders(answer), none)
  t.strictSame(recorded, [{ ok: false, reason: 'owner_deleted' }])
})

t.test('what cannot be counted is a 503', async (t) => {
  for (const error of [new Error('password=hunter2'), null]) {
    const { ask, served } = limited(t, (_caller, done) => done(error))
    const answer = await ask()
    t.equal(answer.statusCode, 503)
    t.equal(envelopeOf(answer.body).code, 'service_unavailable')
    t.match(answer.headers['retry-after'], /^\d+$/)
    t.notMatch(answer.body, 'hunter2')
    t.equal(served(), 0)
  }
})

t.test('without the authenticate plugin it does not start', async (t) => {
  const { app } = otherApp(t)
  app.register(rateLimit, { hit: counting(1) })
  await t.rejects(Promise.resolve(app.ready()), { message: /authenticate/ })
})
