// Each error that a client with a key can meet, in the envelope, and the page that its docs_url
// leads to.
// Bodies in all variations are tested in test/plugins/json-body.test.ts and values.test.ts.
import { connect } from 'node:net'
import t from 'tap'
import { type Answer, type Ask, makeCaller, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { type Code, errors, expectError, expectRated, isRated } from './expect-error.ts'
import { sendBytes } from './raw-http.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const below = await startInstance(t, services, { BASE_URL: 'https://keys.example/base' })
const sql = openDatabase(t, services.databaseUrl)
const { token } = await makeCaller(instance)
const json = { 'content-type': 'application/json' }
const post = (ask: Ask) => instance.ask('POST', '/v1/keys', { token, ...ask })
/** A valid body of exactly this many bytes. */
const padded = (bytes: number) => '{"name":"padded"}'.padEnd(bytes)

t.test('each kind of bad body has its own error', async (t) => {
  const bodies: [code: Code, param: string, ask: Ask][] = [
    ['invalid_json', '', { headers: json, body: '{"name":' }],
    ['invalid_json', '', { headers: json, body: '' }],
    ['invalid_json', '', { headers: json, body: Buffer.from([0x22, 0xff, 0x22]) }],
    ['invalid_parameter', '', { json: [] }],
    ['missing_parameter', 'name', { json: {} }],
    ['unknown_parameter', 'colour', { json: { name: 'x', colour: 'red' } }],
    ['invalid_parameter', 'name', { json: { name: 5 } }],
    ['unsupported_media_type', '', { headers: { 'content-type': 'text/plain' }, body: '{"name":"x"}' }],
    ['unsupported_media_type', '', { body: Buffer.from('{"name":"x"}') }],
    ['payload_too_large', '', { headers: json, body: padded(16_385) }],
  ]
  for (const [code, param, ask] of bodies) {
    const answer = await post(ask)
    expectError(t, answer, code, param)
    expectRated(t, answer)
  }
  t.equal((await post({ headers: json, body: padded(16_384) })).status, 201)
})

t.test('a body is bounded by its length before it is sent, and in chunks', async (t) => {
  const lines = ['POST /v1/keys HTTP/1.1', 'Host: x', 'Connection: close', `Authorization: Bearer ${token}`]
  const head = [...lines, 'Content-Type: application/json'].join('\r\n')
  for (const rest of [
    'Content-Length: 1000000000\r\n\r\n',
    `Transfer-Encoding: chunked\r\n\r\n4001\r\n${padded(0x4001)}\r\n0\r\n\r\n`,
  ]) {
    expectError(t, await sendBytes(instance.port, `${head}\r\n${rest}`), 'payload_too_large')
  }
})

t.test('a client that reads only after it has sent far too much gets the error, too', async (t) => {
  const authorization = `Authorization: Bearer ${token}`
  const body = padded(10_000_000)
  for (const [code, ...lines] of [
    ['payload_too_large', authorization, 'Content-Type: application/json'],
    ['unsupported_media_type', authorization, 'Content-Type: text/plain', 'Connection: close'],
    ['unauthorized', 'Connection: close'],
  ] as [code: Code, ...lines: string[]][]) {
    const socket = connect(instance.port, '127.0.0.1')
    t.teardown(() => void socket.destroy())
    const head = ['POST /v1/keys HTTP/1.1', 'Host: x', `Content-Length: ${body.length}`, ...lines]
    let answer = ''
    const closed = new Promise((resolve) => socket.on('error', () => {}).once('close', resolve))
    const sent = new Promise((resolve) => socket.write(`${head.join('\r\n')}\r\n\r\n${body}`, resolve))
    t.notOk(await sent, 'all is sent')
    socket.on('data', (data) => {
      answer += data
    })
    await closed
    t.match(answer, new RegExp(`^HTTP/1\\.1 4.*"${code}"`, 's'))
  }
})

t.test('a time in milliseconds is refused with a suggestion that says so', async (t) => {
  const answer = await post({ json: { name: 'x', expires_at: Date.now() + 3_600_000 } })
  expectError(t, answer, 'invalid_parameter', 'expires_at')
  t.match(answer.body.error.suggestion, /millisecond/i)
  const past = await post({ json: { name: 'x', expires_at: 1_000_000_000 } })
  expectError(t, past, 'invalid_parameter', 'expires_at')
  t.notMatch(past.text, /millisecond/i)
})

t.test('a key sent as the name of a member is redacted, also where the name is cut', async (t) => {
  const rest = token.slice('lk_'.length)
  const cut = ' '.repeat(70)
  for (const [name, shown] of [
    [token, 'lk_[redacted]'],
    [cut + rest, `${cut}[redacted]`],
  ])
    for (const body of [`{"${name}":1,"${name}":2}`, `{"name":"x","${name}":1}`]) {
      const answer = await post({ headers: json, body })
      expectError(t, answer, answer.body.error.code, shown)
      t.notMatch(answer.text, rest.slice(0, 10))
    }
})

t.test('no response may be sniffed, and none to a request with a key may be stored', async (t) => {
  const paths = ['/v1/verify', '/v1/keys', '/v1/keys/apk_0', '/docs/errors/not_found', '/docs/errors/nope']
  for (const request of [...paths.map((path) => `GET ${path}`), 'PUT /v1/keys']) {
    const [method, path] = request.split(' ') as [string, string]
    const { headers } = await instance.ask(method, path, { token })
    t.equal(headers.get('x-content-type-options'), 'nosniff', request)
    if (path.startsWith('/v1')) t.equal(headers.get('cache-control'), 'no-store', request)
    else t.not(headers.get('cache-control'), 'no-store', request)
  }
})

t.test("every response has a request id of its own, never the client's", async (t) => {
  const headers = { 'x-request-id': 'req_mine', 'request-id': 'req_mine', traceparent: 'req_mine' }
  const answers: Answer[] = []
  for (const path of ['/v1/verify', '/v1/keys', '/v1/keys/apk_0', '/nope', '/docs/errors/not_found']) {
    for (let i = 0; i < 3; i++) answers.push(await instance.ask('GET', path, { token, headers }))
  }
  const ids = answers.map(({ headers }) => headers.get('x-request-id'))
  for (const id of ids) t.match(id, /^req_(?!mine)[0-9A-Za-z]+$/)
  t.equal(new Set(ids).size, answers.length)
})

t.test(
  'the page of every error, and the index of them, open without a key, below any BASE_URL',
  async (t) => {
    const isHtml = ({ status, headers, text }: Answer) =>
      status === 200 &&
      headers.get('content-type') === 'text/html; charset=utf-8' &&
      /^default-src 'none';/.test(headers.get('content-security-policy') ?? '') &&
      /^<!doctype html>/.test(text)
    for (const [one, base] of [
      [instance, ''],
      [below, '/base'],
    ] as const) {
      t.equal((await one.ask('GET', '/')).headers.get('location'), `${base}/docs`)
      const index = await one.ask('GET', '/docs/errors')
      t.ok(isHtml(index))
      for (const [code, [status]] of Object.entries(errors)) {
        t.match(index.text, `href="${base}/docs/errors/${code}"`)
        t.match(index.text, String(status))
        const page = await one.ask('GET', `/docs/errors/${code}`)
        t.ok(isHtml(page), code)
        t.notOk(isRated(page))
        for (const text of [code, String(status), `href="${base}/docs"`]) t.match(page.text, text)
      }
    }
    const { text } = await instance.ask('GET', '/docs/errors/unauthorized')
    t.match(text, 'Bearer &lt;KEY_PREFIX&gt;_...', 'what to do, in HTML')
    const { error } = (await below.ask('GET', '/v1/keys')).body
    t.equal(error.docs_url, 'https://keys.example/base/docs/errors/unauthorized')
  },
)

t.test('a new key is located below the path of BASE_URL', async (t) => {
  const { status, headers, body } = await below.ask('POST', '/v1/keys', { token, json: { name: 'x' } })
  t.equal(status, 201)
  t.equal(headers.get('location'), `/base/v1/keys/${body.id}`)
  const rotated = await below.ask('POST', `/v1/keys/${body.id}/rotate`, { token })
  t.equal(rotated.headers.get('location'), `/base/v1/keys/${rotated.body.id}`)
})

t.test('an unknown page is 404 without a key', async (t) => {
  const names = 'nope Unauthorized __proto__ constructor toString %3Cscript%3E %zz %00 unauthorized/more'
  for (const name of [...names.split(' '), 'a'.repeat(5000)]) {
    const answer = await instance.ask('GET', `/docs/errors/${name}`)
    expectError(t, answer, 'route_not_found')
    t.notMatch(answer.text, '<script>')
  }
})

t.test('the paths that browsers and tools ask by themselves need no key, and write nothing', async (t) => {
  const caller = await makeCaller(instance)
  const refusals = async () => (await sql`select id from audit_log where event = 'auth.refused'`).length
  const before = await refusals()
  const open: Record<string, number> = {
    ...{ '/': 302, '/docs': 200, '/docs/errors': 200, '/favicon.ico': 204 },
    ...{ '/docs/': 200, '/docs/errors/': 200, '/docs/errors/not_found/': 200 },
    ...{ '/%64ocs?x': 200, '/docs/errors/not%5Ffound': 200 },
    ...{ '/openapi.json': 200, '/docs/nope': 404 },
  }
  for (const [path, status] of Object.entries(open)) {
    for (const method of ['GET', 'HEAD']) {
      const keyless = await instance.ask(method, path)
      t.equal(keyless.status, status, `${method} ${path}`)
      t.match(keyless.headers.get('x-request-id'), /^req_/)
      t.equal(keyless.headers.get('x-content-type-options'), 'nosniff')
      for (const token of [caller.token, `lk_${'0'.repeat(38)}`]) {
        const answer = await instance.ask(method, path, { token })
        t.equal(answer.status, status, 'with a key too, good or bad')
        t.notOk(isRated(answer))
        t.equal(answer.text.replace(/req_\w+/, ''), keyless.text.replace(/req_\w+/, ''))
      }
    }
  }
  for (const path of [
    '/',
    '/docs',
    '/docs/errors',
    '/docs/errors/not_found',
    '/openapi.json',
    '/favicon.ico',
  ]) {
    const { headers } = await instance.ask('GET', path)
    const head = await instance.ask('HEAD', path)
    t.equal(head.headers.get('content-length'), headers.get('content-length'), path)
    t.match(headers.get('cache-control'), /^public, max-age=\d{3,5}$/, path)
    const etag = headers.get('etag')
    if (etag === null) continue
    const again = { headers: { 'if-none-match': `"other", W/${etag}` } }
    for (const method of ['GET', 'HEAD']) {
      const { status, text, headers } = await instance.ask(method, path, again)
      t.same([status, text], [304, ''], `${path} has not changed`)
      t.equal(headers.get('content-length'), null)
    }
    again.headers['if-none-match'] = '"other"'
    t.equal((await instance.ask('GET', path, again)).status, 200)
    again.headers['if-none-match'] = '*'
    t.equal((await instance.ask('GET', path, again)).status, 304, `${path} exists`)
  }
  t.equal(await refusals(), before)
  const [key] = await sql`select last_used_at from api_keys where id = ${caller.id}`
  t.equal(key!.last_used_at, null)
})
