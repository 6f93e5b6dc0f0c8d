// Each error that a client with a key can meet, in the envelope (spec section 7 and the design's table).
import t from 'tap'
import { type Answer, type Ask, makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { type Code, expectError, expectRated } from './expect-error.ts'
import { sendBytes } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const { token } = await makeCaller(instance)

const json = { 'content-type': 'application/json' }
const post = (ask: Ask) => instance.ask('POST', '/v1/keys', { token, ...ask })
const bytes = (...parts: (string | number[])[]) =>
  new Uint8Array(Buffer.concat(parts.map((part) => Buffer.from(part as string))))

const bodies: [what: string, code: Code, param: string, ask: Ask][] = [
  ['a body cut short', 'invalid_json', '', { headers: json, body: '{"name":' }],
  ['an empty body', 'invalid_json', '', { headers: json, body: '' }],
  ['a blank body', 'invalid_json', '', { headers: json, body: '  \n' }],
  ['JSON and more', 'invalid_json', '', { headers: json, body: '{"name":"x"} x' }],
  ['two JSON values', 'invalid_json', '', { headers: json, body: '{"name":"x"}{"name":"y"}' }],
  ['a trailing comma', 'invalid_json', '', { headers: json, body: '{"name":"x",}' }],
  ['single quotes', 'invalid_json', '', { headers: json, body: "{'name':'x'}" }],
  ['a comment', 'invalid_json', '', { headers: json, body: '{"name":"x"/**/}' }],
  ['NaN', 'invalid_json', '', { headers: json, body: '{"name":"x","rate_limit_rpm":NaN}' }],
  [
    'a number with a leading zero',
    'invalid_json',
    '',
    { headers: json, body: '{"name":"x","rate_limit_rpm":010}' },
  ],
  ['a raw control character', 'invalid_json', '', { headers: json, body: '{"name":"a\u0001b"}' }],
  ['a byte that is not UTF-8', 'invalid_json', '', { headers: json, body: bytes('{"name":"', [0xff], '"}') }],
  ['UTF-8 cut short', 'invalid_json', '', { headers: json, body: bytes('{"name":"', [0xe2, 0x82], '"}') }],
  ['overlong UTF-8', 'invalid_json', '', { headers: json, body: bytes('{"name":"', [0xc1, 0xa1], '"}') }],
  [
    'a surrogate in UTF-8',
    'invalid_json',
    '',
    { headers: json, body: bytes('{"name":"', [0xed, 0xa0, 0x80], '"}') },
  ],
  [
    'UTF-16',
    'invalid_json',
    '',
    { headers: json, body: new Uint8Array(Buffer.from('{"name":"x"}', 'utf16le')) },
  ],
  ['an array', 'invalid_parameter', '', { headers: json, body: '[]' }],
  ['null', 'invalid_parameter', '', { headers: json, body: 'null' }],
  ['a string', 'invalid_parameter', '', { headers: json, body: '"name"' }],
  ['a number', 'invalid_parameter', '', { headers: json, body: '1' }],
  ['no name', 'missing_parameter', 'name', { json: {} }],
  ['an unknown member', 'unknown_parameter', 'colour', { json: { name: 'x', colour: 'red' } }],
  ['a name that is a number', 'invalid_parameter', 'name', { json: { name: 5 } }],
  [
    'a limit that is a string',
    'invalid_parameter',
    'rate_limit_rpm',
    { json: { name: 'x', rate_limit_rpm: '5' } },
  ],
  [
    'a time that is a string',
    'invalid_parameter',
    'expires_at',
    { json: { name: 'x', expires_at: '2030-01-01' } },
  ],
  [
    'plain text',
    'unsupported_media_type',
    '',
    { headers: { 'content-type': 'text/plain' }, body: '{"name":"x"}' },
  ],
  [
    'a form',
    'unsupported_media_type',
    '',
    { headers: { 'content-type': 'application/x-www-form-urlencoded' }, body: 'name=x' },
  ],
  [
    'another JSON type',
    'unsupported_media_type',
    '',
    { headers: { 'content-type': 'application/merge-patch+json' }, body: '{"name":"x"}' },
  ],
  [
    'a type that only begins alike',
    'unsupported_media_type',
    '',
    { headers: { 'content-type': 'application/jsonp' }, body: '{"name":"x"}' },
  ],
  [
    'a malformed type',
    'unsupported_media_type',
    '',
    { headers: { 'content-type': 'json' }, body: '{"name":"x"}' },
  ],
  ['no type', 'unsupported_media_type', '', { body: bytes('{"name":"x"}') }],
  [
    'gzip',
    'unsupported_media_type',
    '',
    { headers: { ...json, 'content-encoding': 'gzip' }, body: '{"name":"x"}' },
  ],
  ['16 KiB and a byte', 'payload_too_large', '', { headers: json, body: padded(16_385) }],
  ['a megabyte', 'payload_too_large', '', { headers: json, body: padded(1_000_000) }],
]

/** A valid body of exactly this many bytes. */
function padded(length: number): string {
  return '{"name":"padded"}'.padEnd(length)
}

for (const [what, code, param, ask] of bodies) {
  t.test(`a creation with ${what} is ${code}`, async (t) => {
    const answer = await post(ask)
    expectError(t, answer, code, param)
    expectRated(t, answer)
  })
}

t.test('16 KiB are taken, and application/json with parameters and in any case', async (t) => {
  t.equal((await post({ headers: json, body: padded(16_384) })).status, 201)
  for (const type of [
    'application/json; charset=utf-8',
    'Application/JSON',
    'application/json;charset="UTF-8"',
  ]) {
    t.equal((await post({ headers: { 'content-type': type }, body: '{"name":"x"}' })).status, 201, type)
  }
})

t.test('a body that says it is too large is refused before it is sent', async (t) => {
  const head = [
    'POST /v1/keys HTTP/1.1',
    'Host: latchkey.test',
    'Connection: close',
    `Authorization: Bearer ${token}`,
  ]
  const rest = ['Content-Type: application/json', 'Content-Length: 1000000000', '', '']
  expectError(t, await sendBytes(instance.port, [...head, ...rest].join('\r\n')), 'payload_too_large')
})

t.test('a body in chunks is bounded too', async (t) => {
  const head = [
    'POST /v1/keys HTTP/1.1',
    'Host: latchkey.test',
    'Connection: close',
    `Authorization: Bearer ${token}`,
  ]
  const rest = ['Content-Type: application/json', 'Transfer-Encoding: chunked', '', '']
  const chunks = `4001\r\n${padded(0x4001)}\r\n0\r\n\r\n`
  expectError(
    t,
    await sendBytes(instance.port, [...head, ...rest].join('\r\n') + chunks),
    'payload_too_large',
  )
})

t.test('a time in milliseconds is refused with an answer that says so', async (t) => {
  const answer = await post({ json: { name: 'x', expires_at: Date.now() + 3_600_000 } })
  expectError(t, answer, 'invalid_parameter', 'expires_at')
  const { message, suggestion } = answer.body.error
  t.match(`${message} ${suggestion}`, /millisecond/i)
  const past = await post({ json: { name: 'x', expires_at: 1_000_000_000 } })
  expectError(t, past, 'invalid_parameter', 'expires_at')
  t.notMatch(past.text, /millisecond/i)
})

t.test('no answer is sniffed, and none that a key leads to is stored', async (t) => {
  const answers = {
    ...{ verify: '/v1/verify', list: '/v1/keys', 'a 404': '/v1/keys/apk_0', 'a 405': '/v1/verify' },
    ...{ 'a page': '/docs/errors/not_found', 'no page': '/docs/errors/nope' },
  }
  for (const [what, path] of Object.entries(answers)) {
    const { headers } = await instance.ask(what === 'a 405' ? 'PUT' : 'GET', path, { token })
    t.equal(headers.get('x-content-type-options'), 'nosniff', what)
    t.equal(headers.get('cache-control'), path.startsWith('/v1') ? 'no-store' : null, what)
  }
})

t.test('a member that is there twice is refused by name, before either is looked at', async (t) => {
  const body = '{"name":"x","rate_limit_rpm":5,"rate_limit_rpm":"no number"}'
  expectError(t, await post({ headers: json, body }), 'invalid_json', 'rate_limit_rpm')
  const named = `{"${token}":1,"${token}":2}`
  const answer = await post({ headers: json, body: named })
  expectError(t, answer, 'invalid_json', 'lk_[redacted]')
  t.notMatch(answer.text, token)
})

t.test("every answer has a request id of its own, never the client's", async (t) => {
  const headers = { 'x-request-id': 'req_mine', 'request-id': 'req_mine', traceparent: 'req_mine' }
  const answers: Answer[] = []
  for (const path of ['/v1/verify', '/v1/keys', '/v1/keys/apk_0', '/nope', '/docs/errors/not_found']) {
    for (let i = 0; i < 3; i++) answers.push(await instance.ask('GET', path, { token, headers }))
  }
  const ids = answers.map(({ headers }) => headers.get('x-request-id'))
  t.ok(ids.every((id) => /^req_[0-9A-Za-z]+$/.test(id ?? '')))
  t.notOk(ids.includes('req_mine'))
  t.equal(new Set(ids).size, answers.length)
})
