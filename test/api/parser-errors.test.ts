// Bytes that are not one good HTTP/1.1 request still get the envelope: a bare socket sends what no client library would.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { type Code, expectError, isRated } from './expect-error.ts'
import { type RawAnswer, sendBytes, sendRaw } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const { port } = instance
const { token } = await makeCaller(instance)
const authorization = `Authorization: Bearer ${token}`

/** Without framing of its own: lines as given, a key among them. */
const send = (...lines: string[]) =>
  sendBytes(port, Buffer.from([...lines, authorization, 'Connection: close', '', ''].join('\r\n'), 'latin1'))

const answersIn = ({ raw }: RawAnswer) => raw.match(/HTTP\/1\.1 [0-9]{3} /g)?.length

const get = 'GET /v1/verify HTTP/1.1'
const host = 'Host: latchkey.test'
const broken: [what: string, code: Code, ...lines: string[]][] = [
  ['a NUL in a header', 'bad_request', get, host, 'X-A: a\0b'],
  ['a NUL in the path', 'bad_request', 'GET /v1/verify\0 HTTP/1.1', host],
  ['a bare CR in a header', 'bad_request', get, host, 'X-A: a\rb'],
  ['a bare LF in a header', 'bad_request', get, host, 'X-A: a\nb'],
  ['a space before a colon', 'bad_request', get, host, 'X-A : b'],
  ['a header without a colon', 'bad_request', get, host, 'nonsense'],
  ['a header without a name', 'bad_request', get, host, ': b'],
  ['no Host', 'bad_request', get],
  ['two Hosts', 'bad_request', get, host, 'Host: elsewhere.test'],
  ['two equal Hosts', 'bad_request', get, host, host],
  ['two lengths', 'bad_request', 'POST /v1/keys HTTP/1.1', host, 'Content-Length: 2', 'Content-Length: 3'],
  ['a length that is no number', 'bad_request', 'POST /v1/keys HTTP/1.1', host, 'Content-Length: two'],
  ['a negative length', 'bad_request', 'POST /v1/keys HTTP/1.1', host, 'Content-Length: -1'],
  [
    'an unknown transfer coding',
    'bad_request',
    'POST /v1/keys HTTP/1.1',
    host,
    'Transfer-Encoding: chunked, nope',
  ],
  ['a method that is none', 'bad_request', 'F@O /v1/verify HTTP/1.1', host],
  ['a version that is none', 'bad_request', 'GET /v1/verify HTTP/9.9', host],
  ['another protocol', 'bad_request', 'SSH-2.0-OpenSSH_9.2'],
  ['a space in the path', 'bad_request', 'GET /v1/ver ify HTTP/1.1', host],
  ['headers of 20 KiB', 'headers_too_large', get, host, `X-A: ${'a'.repeat(20_000)}`],
  [
    'many headers',
    'headers_too_large',
    get,
    host,
    ...Array.from({ length: 2000 }, (_, i) => `X-${i}: abcdef`),
  ],
  ['a path of 20 KiB', 'headers_too_large', `GET /v1/keys/${'a'.repeat(20_000)} HTTP/1.1`, host],
]
for (const [what, code, ...lines] of broken) {
  t.test(`a request with ${what} is ${code}, and the connection ends`, async (t) => {
    const answer = await send(...lines)
    expectError(t, answer, code)
    t.notOk(isRated(answer), 'nobody was authenticated')
    t.equal(answer.headers.get('connection'), 'close')
    t.equal(answersIn(answer), 1, 'one answer')
    t.equal(Number(answer.headers.get('content-length')), Buffer.byteLength(answer.text))
  })
}

t.test('a request with a length and chunks is bad_request, and nothing is smuggled behind it', async (t) => {
  const lines = ['POST /v1/keys HTTP/1.1', host, authorization, 'Content-Type: application/json']
  const both = [...lines, 'Content-Length: 4', 'Transfer-Encoding: chunked', '', '0', '', '']
  const smuggled = [get, host, authorization, 'Connection: close', '', '']
  const answer = await sendBytes(port, both.join('\r\n') + smuggled.join('\r\n'))
  expectError(t, answer, 'bad_request')
  t.equal(answersIn(answer), 1, 'one answer')
})

// The head was good, so the request is under way when its body turns out not to be.
const brokenBody = [
  'Content-Type: application/json',
  'Transfer-Encoding: chunked',
  '',
  '2',
  '{}',
  'zz',
  '',
  '',
]

t.test('a creation whose chunks break off is bad_request', async (t) => {
  const head = ['POST /v1/keys HTTP/1.1', host, authorization]
  const answer = await sendBytes(port, [...head, ...brokenBody].join('\r\n'))
  expectError(t, answer, 'bad_request')
  t.equal(answersIn(answer), 1, 'one answer')
})

t.test('a request that was answered before its chunks broke off gets no second answer', async (t) => {
  const answer = await sendBytes(port, ['POST /v1/keys HTTP/1.1', host, ...brokenBody].join('\r\n'))
  t.equal(answer.status, 401)
  t.equal(answersIn(answer), 1, 'one answer')
})

t.test('an error of the parser gives away no byte of the request', async (t) => {
  const answer = await send(get, host, 'X-Marked: marked\0marked')
  expectError(t, answer, 'bad_request')
  t.notMatch(answer.raw, /marked/i)
  t.notMatch(answer.raw, token)
})

t.test('an expectation nobody knows is answered by the service, not by Node', async (t) => {
  const answer = await sendRaw(port, 'GET', '/v1/verify', [authorization, 'Expect: x'])
  t.match(answer.headers.get('x-request-id'), /^req_/)
  if (answer.status !== 200) expectError(t, answer, 'bad_request')
  const refused = await sendRaw(port, 'GET', '/v1/verify', ['Expect: x'])
  t.match(refused.headers.get('x-request-id'), /^req_/)
  if (refused.status !== 401) expectError(t, refused, 'bad_request')
})

t.test('a client that waits for 100 Continue is told to go on', async (t) => {
  const body = '{"name":"continued"}'
  const answer = await sendRaw(
    port,
    'POST',
    '/v1/keys',
    [authorization, 'Content-Type: application/json', 'Expect: 100-continue'],
    body,
  )
  t.match(answer.raw, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 201 /)
})

// RFC 9112, 3.2.2: a server must accept the absolute-form, although only proxies are sent it.
t.test('a target in absolute-form is the route it names', async (t) => {
  const target = 'http://latchkey.test/v1/verify'
  t.equal((await sendRaw(port, 'GET', target, [authorization])).status, 200)
  expectError(t, await sendRaw(port, 'GET', target), 'unauthorized')
  const unknown = await sendRaw(port, 'GET', 'http://latchkey.test/nope', [authorization])
  expectError(t, unknown, 'route_not_found')
})

t.test('OPTIONS * gets an envelope too', async (t) => {
  const all = await sendRaw(port, 'OPTIONS', '*', [authorization])
  t.ok([404, 405].includes(all.status), `OPTIONS * is ${all.status}`)
  expectError(t, all, all.body?.error.code, null)
})

t.test('an offer to upgrade is declined by answering the request', async (t) => {
  const lines = [get, host, authorization, 'Connection: Upgrade, close', 'Upgrade: websocket', '', '']
  t.equal((await sendBytes(port, lines.join('\r\n'))).status, 200)
})

t.test('the service goes on after all that', async (t) => {
  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200)
  t.same(
    instance.log.filter(({ level }) => Number(level) >= 50),
    [],
    'and found no fault of its own',
  )
})
