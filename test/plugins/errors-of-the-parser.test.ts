// What the HTTP parser refuses never becomes a request, and still gets the envelope. On real
// sockets.
import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { answersOf, envelopeOf, otherApp, raw } from './other-app.ts'

const get = 'GET / HTTP/1.1'
const post = 'POST / HTTP/1.1'
const host = 'Host: x'
const malformed: Record<string, string[]> = {
  'another protocol': ['SSH-2.0-OpenSSH_9.2'],
  'an invalid method': ['F@O / HTTP/1.1', host],
  'an invalid version': ['GET / HTTP/9.9', host],
  'the version of another protocol': ['GET / HTTP/2.0', host],
  'a request for a tunnel': ['CONNECT x:80 HTTP/1.1', host],
  'a space in the path': ['GET /a b HTTP/1.1', host],
  'a NUL in the path': ['GET /\0 HTTP/1.1', host],
  'a NUL in a header': [get, host, 'A: b\0c'],
  'a bare CR in a header': [get, host, 'A: b\rc'],
  'a bare LF in a header': [get, host, 'A: b\nc'],
  'a space before a colon': [get, host, 'A : b'],
  'a header without a colon': [get, host, 'nonsense'],
  'a header without a name': [get, host, ': b'],
  'no Host': [get],
  'two Hosts': [get, host, 'Host: y'],
  'the same Host twice': [get, host, host],
  'a Host with a space': [get, 'Host: a b'],
  'a Host with a path': [get, 'Host: x/y'],
  'a Host with a user': [get, 'Host: u@x'],
  'a Host with half a bracket': [get, 'Host: [::1'],
  'a Host with two ports': [get, 'Host: x:1:2'],
  'a Host with a port that is no number': [get, 'Host: x:y'],
  'a Host that is not ASCII': [get, 'Host: \xff'],
  'two lengths': [post, host, 'Content-Length: 1', 'Content-Length: 2'],
  'a length that is not a number': [post, host, 'Content-Length: two'],
  'a negative length': [post, host, 'Content-Length: -1'],
  'a length and chunks': [post, host, 'Content-Length: 4', 'Transfer-Encoding: chunked'],
  'an unknown transfer coding': [post, host, 'Transfer-Encoding: chunked, nope'],
}

t.test('a malformed request is one 400 with the envelope, and the connection is closed', async (t) => {
  const { app, reported } = otherApp(t)
  let served = 0
  app.all('/', async () => {
    served++
  })
  for (const [what, lines] of Object.entries(malformed)) {
    reported.length = 0
    const behind = `${[get, host, '', ''].join('\r\n')}`
    const [answer, ...others] = answersOf(await raw(app, `${[...lines, '', ''].join('\r\n')}${behind}`))
    t.strictSame(others, [], what)
    t.equal(answer!.status, 400, what)
    t.equal(answer!.headers.connection, 'close', what)
    t.equal(answer!.headers['content-type'], 'application/json; charset=utf-8')
    t.equal(answer!.headers['x-content-type-options'], 'nosniff')
    t.ok(Math.abs(Date.parse(answer!.headers.date!) - Date.now()) < 60_000, 'with a date')
    const { code, type, request_id } = envelopeOf(answer!.body)
    t.strictSame([type, code], ['invalid_request_error', 'bad_request'])
    t.equal(request_id, answer!.headers['x-request-id'])
    t.match(reported, [{ requestId: request_id, error: { code: 'bad_request' } }])
    t.equal(reported.length, 1)
  }
  t.equal(served, 0, 'nor does what comes behind run')
})

t.test('a connection that is reset behind a request for a tunnel harms nobody', async (t) => {
  const { app } = otherApp(t)
  let answer = () => {}
  app.get(
    '/',
    () =>
      new Promise((resolve) => {
        answer = () => resolve('late')
      }),
  )
  app.get('/other', async () => 'ok')
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const tunnel = ['CONNECT x:80 HTTP/1.1', host, '', ''].join('\r\n')
  for (const before of [[get, host, '', ''].join('\r\n'), '']) {
    const asked = once(app.server, 'connect') as Promise<[unknown, Socket]>
    const client = connect(port, '127.0.0.1').on('error', () => {})
    client.write(before + tunnel)
    const [, served] = await asked
    client.resetAndDestroy()
    // Not `once`, which would listen to its errors.
    if (!served.closed) await new Promise((resolve) => served.on('close', resolve))
    answer()
  }
  const lines = ['GET /other HTTP/1.1', host, 'Connection: close', '', '']
  t.equal(answersOf(await raw(app, lines.join('\r\n')))[0]!.status, 200)
})

t.test('a Host may be empty, a name or an address, each with a port', async (t) => {
  const { app } = otherApp(t)
  app.get('/', async () => 'ok')
  for (const value of [
    '',
    'x',
    'my_host:80',
    '127.0.0.1:80',
    '[::1]:80',
    'b%C3%BCro.test',
    "a~!$&'()*+,;=b",
  ]) {
    const lines = [get, `Host: ${value}`, 'Connection: close', '', '']
    const [answer] = answersOf(await raw(app, lines.join('\r\n')))
    t.equal(answer!.status, 200, value)
  }
})

t.test('headers or a path that are too large are 431', async (t) => {
  const { app } = otherApp(t)
  const many = Array.from({ length: 2000 }, (_, i) => `X-${i}: abcdef`)
  for (const lines of [
    [get, host, `A: ${'b'.repeat(20_000)}`],
    [get, host, ...many],
    [`GET /${'a'.repeat(20_000)} HTTP/1.1`],
  ]) {
    const [answer, ...others] = answersOf(await raw(app, [...lines, '', ''].join('\r\n')))
    t.strictSame(others, [])
    t.equal(answer!.status, 431)
    t.match(envelopeOf(answer!.body), { type: 'invalid_request_error', code: 'headers_too_large', param: '' })
  }
})

t.test('a body whose chunks break off is one 400, unless the request was answered before', async (t) => {
  const { app } = otherApp(t)
  app.post('/', async () => 'never')
  app.post(
    '/early',
    { onRequest: async (_request, reply) => reply.code(401).send('early') },
    async () => 'never',
  )
  for (const [path, status] of [
    ['/', 400],
    ['/early', 401],
  ]) {
    const lines = [
      `POST ${path} HTTP/1.1`,
      host,
      'Content-Type: application/json',
      'Transfer-Encoding: chunked',
    ]
    const answers = answersOf(await raw(app, [...lines, '', '2', '{}', 'zz', '', ''].join('\r\n')))
    t.strictSame(
      answers.map(({ status }) => status),
      [status],
    )
  }
})

t.test('every request that does not arrive in time is 408, however many there are', async (t) => {
  const { app, reported } = otherApp(t, {
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
  t.equal(reported.length, 100)
  t.equal(String(await raw(app, '')), '', 'a connection on which nothing was sent expects no answer')
})

t.test('an HTTP/1.0 request needs no Host, and has no second one', async (t) => {
  const { app } = otherApp(t)
  app.get('/', async () => 'ok')
  for (const [hosts, status] of [
    ['', 200],
    ['Host: x\r\nHost: y\r\n', 400],
  ] as const) {
    const [answer] = answersOf(await raw(app, `GET / HTTP/1.0\r\n${hosts}\r\n`))
    t.equal(answer!.status, status)
  }
})

t.test('an unknown expectation is ignored, and the hooks run', async (t) => {
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

t.test('a client that disconnects within its request is no fault', async (t) => {
  const { app, reported } = otherApp(t)
  app.get('/', async () => 'ok')
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = app.server.address() as { port: number }
  const socket = connect(port, '127.0.0.1', () => {
    socket.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab', () => socket.resetAndDestroy())
  })
  await new Promise((resolve) => socket.once('close', resolve))
  t.equal((await fetch(`http://127.0.0.1:${port}/`)).status, 200, 'the others are served')
  t.strictSame(
    reported.filter(({ error }) => error.statusCode >= 500),
    [],
  )
})

t.test('while a request is under way, no more is read than a few of those behind it', async (t) => {
  const { app } = otherApp(t)
  let release = () => {}
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  app.get('/held', async () => held)
  app.get('/', async () => 'ok')
  const behind = [get, host, `A: ${'b'.repeat(1000)}`, '', ''].join('\r\n').repeat(4000)
  const last = [get, host, 'Connection: close', '', ''].join('\r\n')
  const accepted = once(app.server, 'connection')
  const answers = raw(app, `GET /held HTTP/1.1\r\nHost: x\r\n\r\n${behind}${last}`)
  const [connection] = (await accepted) as [Socket]
  for (let before = -1; connection.bytesRead > before; ) {
    before = connection.bytesRead
    for (let turn = 0; turn < 50; turn++) await nextTurn()
  }
  t.ok(connection.bytesRead < 1_000_000, `${connection.bytesRead} bytes`)
  release()
  t.equal((await answers).match(/HTTP\/1\.1 200 /g)?.length, 4002)
})
