// Every failure of any app is sent as the envelope, without its cause.
import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import Fastify from 'fastify'
import t from 'tap'
import { ApiError, notFound } from '../../plugins/api-error.ts'
import errors from '../../plugins/errors.ts'
import { ajv } from '../../plugins/validation.ts'
import { errorTable } from '../../schemas/error-table.ts'
import { docsBase, envelopeOf, otherApp, raw } from './other-app.ts'

t.test('an error is sent with its row of the table', async (t) => {
  const { app } = otherApp(t)
  for (const code of Object.keys(errorTable) as (keyof typeof errorTable)[]) {
    app.get(`/${code}`, async () => {
      throw new ApiError(code)
    })
  }
  for (const [code, row] of Object.entries(errorTable)) {
    const answer = await app.inject(`/${code}`)
    t.equal(answer.statusCode, row.status)
    t.equal(answer.headers['content-type'], 'application/json; charset=utf-8')
    t.equal(answer.headers['x-content-type-options'], 'nosniff')
    t.strictSame(envelopeOf(answer.body), {
      type: row.type,
      code,
      message: row.message,
      param: '',
      docs_url: docsBase + code,
      request_id: answer.headers['x-request-id'],
      suggestion: row.suggestion,
    })
  }
})

t.test('only an unexpected error costs a stack trace', async (t) => {
  const { stackTraceLimit } = Error
  t.notMatch(new ApiError('unauthorized').stack, /^ +at /m)
  t.equal(Error.stackTraceLimit, stackTraceLimit)
  t.match(new ApiError('internal_error').stack, /^ +at /m)
})

t.test('the base of docs_url may be known later', async (t) => {
  const app = Fastify()
  t.teardown(() => app.close())
  let docsBase = 'https://unknown.example/'
  app.register(errors, { docsBase: () => docsBase })
  app.get('/', async () => {
    throw notFound()
  })
  docsBase = 'https://known.example/'
  const answer = await app.inject('/')
  t.equal(envelopeOf(answer.body).docs_url, 'https://known.example/not_found')
})

t.test('a route may set param, message, suggestion and headers', async (t) => {
  const { app } = otherApp(t)
  const details = { param: 'a.b', message: 'No.', suggestion: 'Try 2.', headers: { allow: 'GET' } }
  app.get('/', async () => {
    throw new ApiError('method_not_allowed', details)
  })
  const answer = await app.inject('/')
  t.match(envelopeOf(answer.body), { param: 'a.b', message: 'No.', suggestion: 'Try 2.' })
  t.equal(answer.headers.allow, 'GET')
})

t.test('the 404 is the same whatever the reason', async (t) => {
  const { app } = otherApp(t)
  app.get('/:id', async () => {
    throw notFound()
  })
  const [one, other] = [await app.inject('/absent'), await app.inject('/of-a-stranger')]
  const withoutId = (body: string) => ({ ...envelopeOf(body), request_id: '' })
  t.strictSame(withoutId(one.body), withoutId(other.body))
  t.equal(envelopeOf(one.body).param, 'id')
})

const secret = 'password=hunter2'
const thrown: Record<string, unknown> = {
  'an Error': new Error(secret),
  'a TypeError': new TypeError(secret),
  'a string': secret,
  'an object': { message: secret, statusCode: 200 },
  'an Error with a status of success': Object.assign(new Error(secret), { statusCode: 204 }),
  null: null,
  undefined: undefined,
}

t.test('anything else thrown by a handler is a 500 that reveals nothing of it', async (t) => {
  const { app, reported } = otherApp(t)
  let value: unknown
  app.get('/', async () => {
    throw value
  })
  for (const what of Object.keys(thrown)) {
    value = thrown[what]
    reported.length = 0
    const answer = await app.inject('/')
    t.equal(answer.statusCode, 500, what)
    t.notMatch(answer.body, secret, what)
    t.equal(envelopeOf(answer.body).code, 'internal_error')
    t.equal(reported.length, 1)
    t.equal(reported[0]?.error.cause, value, 'the log gets it')
  }
})

t.test('errors of hooks, serializers and validation are sent in the same way', async (t) => {
  const { app } = otherApp(t, { ajv: ajv as never })
  const response = { 200: { type: 'object', required: ['a'], properties: { a: { type: 'string' } } } }
  app.get('/serializer', { schema: { response } }, async () => ({}))
  app.register(async (scope) => {
    scope.addHook('preHandler', async () => {
      throw new Error('in a hook')
    })
    scope.get('/hook', async () => 'never')
  })
  const body = {
    type: 'object',
    required: ['name'],
    additionalProperties: false,
    properties: { name: { type: 'string' } },
  }
  app.post('/validation', { schema: { body } }, async () => 'never')
  t.equal(envelopeOf((await app.inject('/serializer')).body).code, 'internal_error')
  t.equal(envelopeOf((await app.inject('/hook')).body).code, 'internal_error')
  const sent = async (payload: object) => {
    const answer = await app.inject({ method: 'POST', url: '/validation', payload })
    const { code, param } = envelopeOf(answer.body)
    return [answer.statusCode, code, param]
  }
  t.strictSame(await sent({}), [400, 'missing_parameter', 'name'])
  t.strictSame(await sent({ name: 'x', nam: 'y' }), [400, 'unknown_parameter', 'nam'])
  t.strictSame(await sent({ name: 7 }), [400, 'invalid_parameter', 'name'])
})

t.test("Fastify's own errors are sent in the same way", async (t) => {
  const { app } = otherApp(t, { bodyLimit: 20 })
  app.post('/', async () => 'ok')
  const sent = async (type: string, payload: string) => {
    const answer = await app.inject({ method: 'POST', url: '/', headers: { 'content-type': type }, payload })
    return [answer.statusCode, envelopeOf(answer.body).code]
  }
  t.strictSame(await sent('application/json', `"${'x'.repeat(30)}"`), [413, 'payload_too_large'])
  t.strictSame(await sent('image/png', 'x'), [415, 'unsupported_media_type'])
  for (const text of ['', '{']) t.strictSame(await sent('application/json', text), [400, 'invalid_json'])
})

t.test('an error of another plugin gets the code of its status', async (t) => {
  const { app } = otherApp(t)
  let statusCode = 0
  app.get('/', async () => {
    throw Object.assign(new Error(secret), { statusCode })
  })
  for (const [status, code] of [
    [400, 'bad_request'],
    [408, 'request_timeout'],
    [413, 'payload_too_large'],
    [415, 'unsupported_media_type'],
    [431, 'headers_too_large'],
    [418, 'internal_error'],
  ] as const) {
    statusCode = status
    const answer = await app.inject('/')
    t.strictSame([answer.statusCode, envelopeOf(answer.body).code], [errorTable[code].status, code])
    t.notMatch(answer.body, secret)
  }
})

t.test('a 413 says how much the route takes', async (t) => {
  const { app } = otherApp(t)
  const sizes = { '20 bytes': 20, '3 KiB': 3072, '3 MiB': 3 * 2 ** 20 }
  for (const bodyLimit of Object.values(sizes)) app.post(`/${bodyLimit}`, { bodyLimit }, async () => 'ok')
  for (const [size, bodyLimit] of Object.entries(sizes)) {
    const headers = { 'content-type': 'application/json' }
    const payload = JSON.stringify('x'.repeat(bodyLimit))
    const answer = await app.inject({ method: 'POST', url: `/${bodyLimit}`, headers, payload })
    t.equal(envelopeOf(answer.body).suggestion, `Send at most ${size}.`)
  }
})

t.test('an error with status 503 gets Retry-After', async (t) => {
  const { app } = otherApp(t)
  app.get('/', async () => {
    throw Object.assign(new Error(secret), { statusCode: 503 })
  })
  const answer = await app.inject('/')
  t.equal(answer.statusCode, 503)
  t.match(answer.headers['retry-after'], /^[1-9]\d*$/)
  t.match(envelopeOf(answer.body), { type: 'api_error', code: 'service_unavailable' })
  t.notMatch(answer.body, secret)
})

t.test('onError is called once for each error, with its request, and not for a success', async (t) => {
  const { app, reported } = otherApp(t)
  app.get('/bad', async () => {
    throw notFound()
  })
  app.get('/good', async () => 'ok')
  const answer = await app.inject('/bad')
  const good = await app.inject('/good')
  t.match(reported, [
    { url: '/bad', requestId: answer.headers['x-request-id'], error: { code: 'not_found' } },
  ])
  t.equal(reported.length, 1)
  t.ok(good.headers['x-request-id'], 'every response has its id')
  t.not(good.headers['x-request-id'], answer.headers['x-request-id'])
})

t.test('an error that ends the connection waits for the rest of the body, any other does not', async (t) => {
  const { app, reported } = otherApp(t)
  const refuse = async () => {
    throw new ApiError('unauthorized')
  }
  app.post('/', { onRequest: refuse }, async () => 'never')
  app.post('/small', { bodyLimit: 2 }, async () => 'never')
  await app.listen({ host: '127.0.0.1', port: 0 })
  const head = (path: string, more: string) =>
    `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n${more}\r\n`

  const limits = t.capture(AbortSignal, 'timeout', AbortSignal.timeout)
  for (const [path, more, status] of [
    ['/', 'Connection: close\r\n', 401],
    ['/small', '', 413],
  ] as const) {
    reported.length = 0
    const client = connect((app.server.address() as AddressInfo).port, '127.0.0.1')
    client.write(`${head(path, more)}ab`)
    // It has had time to be refused.
    t.match(await raw(app, `${head('/', 'Connection: close\r\n')}abcd`), 'HTTP/1.1 401')
    t.equal(reported.length, 1)
    t.match(limits(), [{ args: [3000] }], 'but no longer')
    client.write('cd')
    t.match(String(await once(client, 'data')), `HTTP/1.1 ${status}`)
    t.equal(reported.length, 2)
    client.destroy()
  }
  reported.length = 0
  const client = connect((app.server.address() as AddressInfo).port, '127.0.0.1')
  client.write(`${head('/', '')}ab`)
  let others = 0
  for (; others < 20 && reported.length === others; others++)
    await raw(app, `${head('/', 'Connection: close\r\n')}abcd`)
  t.equal(reported.length, others + 1)
  t.match(String(await once(client, 'data')), 'HTTP/1.1 401')
  client.destroy()
})
