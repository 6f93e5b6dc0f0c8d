// Only a request with a usable key passes, in any app; every refusal is the same 401, sent once its reason is kept.
import type { FastifyRequest } from 'fastify'
import t, { type Test } from 'tap'
import { ApiError } from '../../plugins/api-error.ts'
import authenticate, {
  type AuthenticateOptions,
  type Denied,
  type Verdict,
} from '../../plugins/authenticate.ts'
import { refusalReasons } from '../../schemas/refusal.ts'
import { answersOf, caller, envelopeOf, otherApp, raw } from './other-app.ts'

const usable: Verdict = { ok: true, caller }
const token = 'ok_good'

function guarded(t: Test, options: Partial<AuthenticateOptions> = {}) {
  const other = otherApp(t)
  const { app } = other
  const kept: { refused: Denied; requestId: string }[] = []
  const asked: string[] = []
  app.register(authenticate, {
    tokenPrefix: 'ok',
    verify(token, done) {
      asked.push(token)
      done(null, token === 'ok_good' ? usable : { ok: false, reason: 'unknown_key' })
    },
    record: async (refused, request) => void kept.push({ refused, requestId: request.id }),
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
  return { ...other, kept, asked, seen, ask }
}

t.test('a request with a usable key passes, and the route knows its caller', async (t) => {
  const { ask, asked, seen, kept } = guarded(t)
  const answer = await ask(`Bearer ${token}`)
  t.equal(answer.body, 'passed')
  t.equal(answer.headers['cache-control'], 'no-store')
  t.strictSame([asked, seen, kept], [[token], [caller], []])
})

t.test('an answer that comes later is waited for', async (t) => {
  const { ask } = guarded(t, { verify: (_token, done) => void setTimeout(done, 20, null, usable) })
  t.equal((await ask(`Bearer ${token}`)).statusCode, 200)
})

const presented: [what: string, authorization: string | undefined, reason: string][] = [
  ['no header', undefined, 'missing_header'],
  ['an empty header', '', 'wrong_scheme'],
  ['the scheme alone', 'Bearer', 'wrong_scheme'],
  ['Basic', 'Basic b2tfZ29vZA==', 'wrong_scheme'],
  ['Token', `Token ${token}`, 'wrong_scheme'],
  ['no scheme', token, 'wrong_scheme'],
  ['bearer in lower case', `bearer ${token}`, 'wrong_scheme'],
  ['BEARER in upper case', `BEARER ${token}`, 'wrong_scheme'],
  ['two spaces', `Bearer  ${token}`, 'wrong_scheme'],
  ['a tab', `Bearer\t${token}`, 'wrong_scheme'],
  ['a colon', `Bearer: ${token}`, 'wrong_scheme'],
  ['double quotes', `Bearer "${token}"`, 'wrong_scheme'],
  ['single quotes', `Bearer '${token}'`, 'wrong_scheme'],
  ['two tokens', `Bearer ${token} ${token}`, 'wrong_scheme'],
  ['a list of two', `Bearer ${token}, Bearer ${token}`, 'wrong_scheme'],
  ['a parameter', `Bearer ${token}; a=b`, 'wrong_scheme'],
  ['another prefix', 'Bearer sk_good', 'wrong_prefix'],
  ['the prefix in upper case', 'Bearer OK_good', 'wrong_prefix'],
  ['a prefix without its underscore', 'Bearer okgood', 'wrong_prefix'],
  ['a longer prefix', 'Bearer xok_good', 'wrong_prefix'],
  ['an unknown key', 'Bearer ok_bad', 'unknown_key'],
  ['nothing after the prefix', 'Bearer ok_', 'unknown_key'],
]

for (const [what, authorization, reason] of presented) {
  t.test(`${what} is refused as ${reason}`, async (t) => {
    const { ask, kept, asked, seen } = guarded(t)
    const answer = await ask(authorization)
    t.equal(answer.statusCode, 401)
    t.strictSame(kept, [{ refused: { ok: false, reason }, requestId: answer.headers['x-request-id'] }])
    t.equal(asked.length, reason === 'unknown_key' ? 1 : 0, 'looked up only where it may be a key of ours')
    t.strictSame(seen, [])
  })
}

t.test('two Authorization headers are refused, good as each may be', async (t) => {
  const { app, kept } = guarded(t)
  for (const second of [`Authorization: Bearer ${token}`, 'AUTHORIZATION: Basic eA==', 'authorization:']) {
    const lines = ['GET / HTTP/1.1', 'Host: x', `Authorization: Bearer ${token}`, second, 'Connection: close']
    const [answer] = answersOf(await raw(app, `${lines.join('\r\n')}\r\n\r\n`))
    t.equal(answer!.status, 401, second)
  }
  t.strictSame(new Set(kept.map(({ refused }) => refused.reason)), new Set(['wrong_scheme']))
})

t.test('the 401 is the same for every reason, its request id aside', async (t) => {
  const answers: unknown[] = []
  for (const reason of refusalReasons) {
    const verdict: Denied = { ok: false, reason, keyId: 'apk_9', userId: 'usr_9' }
    const { ask } = guarded(t, { verify: (_token, done) => done(null, verdict) })
    const { statusCode, headers, body } = await ask('Bearer ok_x')
    const { date, ...others } = headers
    answers.push({ statusCode, headers: others, body })
  }
  answers.push(
    ...[await guarded(t).ask(), await guarded(t).ask('Basic x')].map(({ statusCode, headers, body }) => {
      const { date, ...others } = headers
      return { statusCode, headers: others, body }
    }),
  )
  for (const answer of answers) t.strictSame(answer, answers[0])
  t.notMatch(JSON.stringify(answers), new RegExp([...refusalReasons, 'apk_9', 'usr_9'].join('|')))
})

t.test('the 401 says what to send, and to whom', async (t) => {
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

t.test('what is known of the key is kept with the reason', async (t) => {
  const verdict: Denied = { ok: false, reason: 'revoked', keyId: 'apk_9', userId: 'usr_9' }
  const { ask, kept } = guarded(t, { verify: (_token, done) => done(null, verdict) })
  await ask('Bearer ok_x')
  t.strictSame(kept[0]!.refused, verdict)
})

t.test('the 401 leaves only once its reason is kept', async (t) => {
  let keep = () => {}
  const kept = new Promise<void>((resolve) => {
    keep = resolve
  })
  const { ask } = guarded(t, { record: () => kept })
  let answered = false
  const answer = ask().then((response) => {
    answered = true
    return response
  })
  await new Promise((resolve) => setTimeout(resolve, 50))
  t.notOk(answered)
  keep()
  t.equal((await answer).statusCode, 401)
})

t.test('what cannot be decided or kept is a 503, and never a 401', async (t) => {
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
    t.match(answer.headers['retry-after'], /^\d+$/)
    t.equal(answer.headers['www-authenticate'], undefined)
    t.match(envelopeOf(answer.body), { type: 'api_error', code: 'service_unavailable', param: '' })
    t.notMatch(answer.body, 'hunter2')
    t.strictSame(seen, [])
  }
})

t.test('a record that gives an answer of its own is sent that', async (t) => {
  const busy = new ApiError('service_unavailable', { headers: { 'retry-after': '17' } })
  const { ask } = guarded(t, { record: () => Promise.reject(busy) })
  const answer = await ask()
  t.equal(answer.statusCode, 503)
  t.equal(answer.headers['retry-after'], '17')
})

t.test('nobody without a key learns of bodies, methods and routes', async (t) => {
  const { app } = guarded(t)
  const asks = [
    { method: 'POST', url: '/', headers: { 'content-type': 'application/json' }, payload: '{bad' },
    { method: 'POST', url: '/', headers: { 'content-type': 'image/png' }, payload: 'x'.repeat(2_000_000) },
    { method: 'GET', url: '/nowhere' },
    { method: 'DELETE', url: '/nowhere?x' },
  ] as const
  for (const ask of asks) t.equal((await app.inject(ask)).statusCode, 401, `${ask.method} ${ask.url}`)
})

t.test('an app guards the routes of one scope and leaves the others open', async (t) => {
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
  const { default: Fastify } = await import('fastify')
  const app = Fastify()
  t.teardown(() => app.close())
  app.register(authenticate, { tokenPrefix: 'ok', verify: () => {}, record: async () => {} })
  await t.rejects(Promise.resolve(app.ready()), { message: /errors/ })
})
