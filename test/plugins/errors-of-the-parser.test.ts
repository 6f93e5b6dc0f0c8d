// What the HTTP parser refuses has no request, and leaves as the envelope all the same. Over real sockets.
import t from 'tap'
import { answersOf, envelopeOf, otherApp, raw } from './other-app.ts'

const malformed: Record<string, string> = {
  'a line that is no request': 'hello\r\n\r\n',
  'a NUL in a header': 'GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n',
  'two lengths': 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab',
  'a length and chunks':
    'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
  'a header without a colon': 'GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n',
}

for (const [what, bytes] of Object.entries(malformed)) {
  t.test(`${what} is a 400 with the envelope, and the connection is closed`, async (t) => {
    const { app, told } = otherApp(t)
    app.post('/', async () => 'ok')
    const [answer, ...others] = answersOf(await raw(app, bytes))
    t.strictSame(others, [])
    t.equal(answer!.status, 400)
    t.equal(answer!.headers.connection, 'close')
    t.equal(answer!.headers['content-type'], 'application/json; charset=utf-8')
    t.equal(answer!.headers['x-content-type-options'], 'nosniff')
    const { code, type, request_id } = envelopeOf(answer!.body)
    t.strictSame([type, code], ['invalid_request_error', 'bad_request'])
    t.equal(request_id, answer!.headers['x-request-id'])
    t.match(told, [{ url: null, requestId: request_id, error: { code: 'bad_request' } }])
    t.equal(told.length, 1)
  })
}

t.test('headers that are too large are a 431', async (t) => {
  const { app } = otherApp(t)
  const [answer] = answersOf(await raw(app, `GET / HTTP/1.1\r\nHost: x\r\nA: ${'b'.repeat(20_000)}\r\n\r\n`))
  t.equal(answer!.status, 431)
  t.match(envelopeOf(answer!.body), { type: 'invalid_request_error', code: 'headers_too_large', param: '' })
})

t.test('requests that do not arrive whole in time are each told 408, however many at once', async (t) => {
  const { app, told } = otherApp(t, {
    requestTimeout: 300,
    http: { headersTimeout: 200, connectionsCheckingInterval: 50 },
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  const half = () => raw(app, 'GET / HTTP/1.1\r\nHost: x\r\nA: half')
  const answers = (await Promise.all(Array.from({ length: 100 }, half))).map((bytes) => answersOf(bytes))
  t.strictSame(
    answers.map((given) => given.map(({ status }) => status)),
    answers.map(() => [408]),
  )
  t.match(envelopeOf(answers[0]![0]!.body), { type: 'invalid_request_error', code: 'request_timeout' })
  t.equal(told.length, 100)
})

t.test('what comes after a good request on one connection is refused after it was answered', async (t) => {
  const { app } = otherApp(t)
  app.get('/slow', async () => {
    await new Promise((resolve) => setTimeout(resolve, 100))
    return 'good'
  })
  const answers = answersOf(await raw(app, 'GET /slow HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n'))
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 400],
  )
  t.equal(answers[0]!.body, 'good')
  t.equal(envelopeOf(answers[1]!.body).code, 'bad_request')
})

for (const [what, hosts] of Object.entries({ 'no Host': '', 'two Hosts': 'Host: a\r\nHost: b\r\n' })) {
  t.test(`a request with ${what} is a 400 with the envelope`, async (t) => {
    const { app } = otherApp(t)
    app.get('/', async () => 'never')
    const [answer] = answersOf(await raw(app, `GET / HTTP/1.1\r\n${hosts}Connection: close\r\n\r\n`))
    t.equal(answer!.status, 400)
    t.equal(envelopeOf(answer!.body).code, 'bad_request')
  })
}

t.test('an HTTP/1.0 request needs no Host', async (t) => {
  const { app } = otherApp(t)
  app.get('/', async () => 'ok')
  const [answer] = answersOf(await raw(app, 'GET / HTTP/1.0\r\n\r\n'))
  t.equal(answer!.status, 200)
})

t.test('an expectation that nobody knows is ignored, and goes the way of every request', async (t) => {
  const { app } = otherApp(t)
  app.addHook('onRequest', async (_request, reply) => {
    reply.header('x-hook', 'ran')
  })
  app.get('/', async () => 'ok')
  const bytes = 'GET / HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\nConnection: close\r\n\r\n'
  const [answer] = answersOf(await raw(app, bytes))
  t.equal(answer!.status, 200)
  t.equal(answer!.headers['x-hook'], 'ran')
})

t.test('a client that goes away in the middle of its request is nobody to answer', async (t) => {
  const { app, told } = otherApp(t)
  app.get('/', async () => 'ok')
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { connect } = await import('node:net')
  const { port } = app.server.address() as { port: number }
  const socket = connect(port, '127.0.0.1', () => {
    socket.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab', () => socket.resetAndDestroy())
  })
  await new Promise((resolve) => socket.once('close', resolve))
  t.equal((await fetch(`http://127.0.0.1:${port}/`)).status, 200, 'the others are served')
  t.strictSame(
    told.filter(({ error }) => error.statusCode >= 500),
    [],
  )
})
