// Only a request with a usable key passes, in any app. Every refusal is the same 401, sent after
// its reason is recorded.
import Fastify, { type FastifyRequest, type LightMyRequestResponse } from 'fastify'
import t, { type Test } from 'tap'
import { ApiError } from '../../plugins/api-error.ts'
import authenticate, {
  type AuthenticateOptions,
  type Denied,
  type Verdict,
} from '../../plugins/authenticate.ts'
import { tokenIn } from '../../plugins/verdict.ts'
import { refusalReasons } from '../../schemas/refusal.ts'
import { answersOf, caller, envelopeOf, otherApp, raw } from './other-app.ts'

const usable: Verdict = { ok: true, caller }
const token = 'ok_good'

function guarded(t: Test, options: Partial<AuthenticateOptions> = {}) {
  const other = otherApp(t)
  const { app } = other
  const recorded: { refused: Denied; requestId: string }[] = []
  const asked: string[] = []
  app.register(authenticate, {
    tokenPrefix: 'ok',
    verify(token, done) {
      asked.push(token)
      done(null, token === 'ok_good' ? usable : { ok: false, reason: 'unknown_key' })
    },
    record: async (refused, request) => void recorded.push({ refused, requestId: request.id }),
    ...options,
  })
  const seen: FastifyRequest['caller'][] = []
  app.register(async (scope) => {
    scope.all('/', async (request) => {
      seen.push(request.caller)
      return 'passed'
    })
  })
  const ask = (authorization?: string) =>
    app.inject({ url: '/', headers: authorization === undefined ? {} : { authorization } })
  return { ...other, recorded, asked, seen, ask }
}

t.test('a request with a usable key passes, and the route knows its caller', async (t) => {
  const { ask, asked, seen, recorded } = guarded(t)
  const answer = await ask(`Bearer ${token}`)
  t.equal(answer.body, 'passed')
  t.equal(answer.headers['cache-control'], 'no-store')
  t.strictSame([asked, seen, recorded], [[token], [caller], []])
})

t.test('a header whose name has as many letters as Authorization is ignored', async (t) => {
  const { app, recorded } = guarded(t)
  const ask = (authorization?: string) =>
    app.inject({
      url: '/',
      headers: { 'cache-control': 'Bearer ok_other', ...(authorization && { authorization }) },
    })
  t.equal((await ask(`Bearer ${token}`)).statusCode, 200)
  t.equal((await ask()).statusCode, 401)
  t.match(recorded, [{ refused: { reason: 'missing_header' } }])
})

t.test('the value of the header may come alone, or as one of several', async (t) => {
  const good = `Bearer ${token}`
  for (const none of [undefined, null, []]) t.match(tokenIn(none, 'ok_'), { reason: 'missing_header' })
  for (const one of [good, [good]]) t.equal(tokenIn(one, 'ok_'), token)
  for (const wrong of [[good, good], ['', good], ''])
    t.match(tokenIn(wrong, 'ok_'), { reason: 'wrong_scheme' })
})

t.test('hooks see no caller of a request that was not admitted', async (t) => {
  const callers: FastifyRequest['caller'][] = []
  const verdicts: Verdict[] = [{ ok: false, reason: 'revoked' }, usable]
  const { app, ask } = guarded(t, {
    verify: (_token, done) => {
      const verdict = verdicts.shift()
      done(verdict === undefined ? new Error('down') : null, verdict)
    },
  })
  app.addHook('onResponse', async ({ caller }) => void callers.push(caller))
  app.register(async (scope) => {
    scope.addHook('preHandler', async (request, reply) => {
      throw await scope.unauthorized({ ok: false, reason: 'expired' }, request, reply)
    })
    scope.get('/too-late', async () => 'passed')
  })
  t.equal((await ask(`Bearer ${token}`)).statusCode, 401)
  const { statusCode } = await app.inject({
    url: '/too-late',
    headers: { authorization: `Bearer ${token}` },
  })
  t.equal(statusCode, 401)
  t.equal((await ask(`Bearer ${token}`)).statusCode, 503)
  t.strictSame(callers, [null, null, null])
})

t.test('a verdict may come later', async (t) => {
  const { ask } = guarded(t, { verify: (_token, done) => void setTimeout(done, 20, null, usable) })
  t.equal((await ask(`Bearer ${token}`)).statusCode, 200)
})

t.test('a header that is not one token of ours is refused with the reason', async (t) => {
  const headers: Record<string, (string | undefined)[]> = {
    missing_header: [undefined],
    wrong_scheme: [
      ...['', 'Bearer', 'Basic b2tfZ29vZA==', `Token ${token}`, token, `bearer ${token}`, `BEARER ${token}`],
      ...[`Bearer  ${token}`, `Bearer\t${token}`, `Bearer: ${token}`, `Bearer${token}`, `"Bearer ${token}"`],
      ...[`Bearer "${token}"`, `Bearer '${token}'`, `Bearer ${token} ${token}`, `Bearer ${token} more`],
      ...[`Bearer ${token}, Bearer ${token}`, `Bearer ${token}; a=b`, 'Bearer ok_é'],
    ],
    wrong_prefix: [
      'Bearer sk_good',
      'Bearer OK_good',
      'Bearer okgood',
      'Bearer xok_good',
      'Bearer ok-good',
      'Bearer ok',
    ],
    unknown_key: ['Bearer ok_bad', 'Bearer ok_', 'Bearer ok_good0'],
  }
  const { ask, recorded, asked, seen } = guarded(t)
  for (const [reason, values] of Object.entries(headers)) {
    for (const value of values) {
      recorded.length = asked.length = 0
      const answer = await ask(value)
      t.equal(answer.statusCode, 401, String(value))
      t.strictSame(
        recorded,
        [{ refused: { ok: false, reason }, requestId: answer.headers['x-request-id'] }],
        String(value),
      )
      t.equal(asked.length, reason === 'unknown_key' ? 1 : 0, 'only what may be a key of ours is looked up')
    }
  }
  t.strictSame(seen, [])
})

t.test('two Authorization headers are refused, even if both are good', async (t) => {
  const { app, recorded } = guarded(t)
  const good = `Authorization: Bearer ${token}`
  const many = Array(1100).fill('A: b')
  for (const second of [[good], ['AUTHORIZATION: Basic eA=='], ['authorization:'], [...many, good]]) {
    const lines = ['GET / HTTP/1.1', 'Host: x', good, ...second, 'Connection: close']
    const [answer] = answersOf(await raw(app, `${lines.join('\r\n')}\r\n\r\n`))
    t.equal(answer!.status, 401, second.slice(-1).join())
  }
  t.strictSame(new Set(recorded.map(({ refused }) => refused.reason)), new Set(['wrong_scheme']))
})

t.test('the 401 is the same for every reason', async (t) => {
  const answers: unknown[] = []
  const keep = ({ statusCode, headers: { date, ...headers }, body }: LightMyRequestResponse) =>
    answers.push({ statusCode, headers, body })
  for (const reason of refusalReasons) {
    const verdict: Denied = { ok: false, reason, keyId: 'apk_9', userId: 'usr_9' }
    keep(await guarded(t, { verify: (_token, done) => done(null, verdict) }).ask('Bearer ok_x'))
  }
  keep(await guarded(t).ask())
  keep(await guarded(t).ask('Basic x'))
  for (const answer of answers) t.strictSame(answer, answers[0])
  t.notMatch(JSON.stringify(answers), new RegExp([...refusalReasons, 'apk_9', 'usr_9'].join('|')))
})

t.test('the 401 says what to send, and for which realm', async (t) => {
  const { ask } = guarded(t, { realm: 'other' })
  const { headers, body } = await ask()
  t.equal(headers['www-authenticate'], 'Bearer realm="other"')
  const { message, suggestion, ...error } = envelopeOf(body)
  t.match(error, { type: 'authentication_error', code: 'unauthorized', param: 'authorization' })
  t.match(message, /missing or invalid/)
  t.match(suggestion, /Authorization: Bearer ok_/)
  t.match(suggestion, /active/)
  t.equal((await guarded(t).ask()).headers['www-authenticate'], 'Bearer realm="latchkey"')
})

t.test('what is known of the key is recorded with the reason', async (t) => {
  const verdict: Denied = { ok: false, reason: 'revoked', keyId: 'apk_9', userId: 'usr_9' }
  const { ask, recorded } = guarded(t, { verify: (_token, done) => done(null, verdict) })
  await ask('Bearer ok_x')
  t.strictSame(recorded[0]!.refused, verdict)
})

t.test('the 401 is sent only after its reason is recorded', async (t) => {
  let keep = () => {}
  const recorded = new Promise<void>((resolve) => {
    keep = resolve
  })
  const { ask } = guarded(t, { record: () => recorded })
  let isAnswered = false
  const answer = ask().finally(() => {
    isAnswered = true
  })
  // Longer than an answer that does not wait for it takes.
  for (let turn = 0; turn < 100; turn++) await new Promise(setImmediate)
  t.notOk(isAnswered)
  keep()
  t.equal((await answer).statusCode, 401)
})

t.test('what cannot be decided or recorded is a 503, never a 401', async (t) => {
  const cause = new Error('password=hunter2')
  const undecided: Partial<AuthenticateOptions>[] = [
    { verify: (_token, done) => done(cause) },
    { verify: (_token, done) => done(null) },
    {
      verify: (_token, done) => done(null, { ok: false, reason: 'revoked' }),
      record: async () => Promise.reject(cause),
    },
  ]
  for (const options of undecided) {
    const { ask, seen } = guarded(t, options)
    const answer = await ask(`Bearer ${token}`)
    t.equal(answer.statusCode, 503)
    t.equal(answer.headers['retry-after'], '1')
    t.equal(answer.headers['www-authenticate'], undefined)
    t.match(envelopeOf(answer.body), { type: 'api_error', code: 'service_unavailable', param: '' })
    t.notMatch(answer.body, 'hunter2')
    t.strictSame(seen, [])
  }
})

t.test('an ApiError of `record` is sent as it is', async (t) => {
  const busy = new ApiError('service_unavailable', { headers: { 'retry-after': '17' } })
  const { ask } = guarded(t, { record: () => Promise.reject(busy) })
  const answer = await ask()
  t.equal(answer.statusCode, 503)
  t.equal(answer.headers['retry-after'], '17')
})

t.test('without a key, bodies, methods and routes make no difference', async (t) => {
  const { app } = guarded(t)
  const asks = [
    { method: 'POST', url: '/', headers: { 'content-type': 'application/json' }, payload: '{bad' },
    { method: 'POST', url: '/', headers: { 'content-type': 'image/png' }, payload: 'x'.repeat(2_000_000) },
    { method: 'GET', url: '/nowhere' },
    { method: 'DELETE', url: '/nowhere?x' },
  ] as const
  for (const ask of asks) t.equal((await app.inject(ask)).statusCode, 401, `${ask.method} ${ask.url}`)
})

t.test('the plugin guards the routes of its scope and leaves the others open', async (t) => {
  const { app } = otherApp(t)
  app.get('/open', async () => 'open')
  app.register(async (scope) => {
    scope.register(authenticate, {
      tokenPrefix: 'ok',
      verify: (_token, done) =>
        done(null, { ok: true, caller: { ...caller, plan: 'gold' } as typeof caller }),
      record: async () => {},
    })
    scope.get('/closed', async (request) => request.caller)
  })
  t.equal((await app.inject('/open')).body, 'open')
  t.equal((await app.inject('/closed')).statusCode, 401)
  const answer = await app.inject({ url: '/closed', headers: { authorization: `Bearer ${token}` } })
  t.strictSame(answer.json(), { ...caller, plan: 'gold' }, 'with what else the app knows of its caller')
})

t.test('without the errors plugin it does not start', async (t) => {
  const app = Fastify()
  t.teardown(() => app.close())
  app.register(authenticate, { tokenPrefix: 'ok', verify: () => {}, record: async () => {} })
  await t.rejects(Promise.resolve(app.ready()), { message: /errors/ })
})
