// Bodies are JSON in valid UTF-8 and say so. Everything else is refused.
import { gzipSync } from 'node:zlib'
import type { FastifyRequest } from 'fastify'
import t, { type Test } from 'tap'
import jsonBody from '../../plugins/json-body.ts'
import { shownMember } from '../../plugins/shown-text.ts'
import { ajv } from '../../plugins/validation.ts'
import { answersOf, envelopeOf, otherApp, raw } from './other-app.ts'

const anyBody = { schema: { body: {} } }

function taking(t: Test, { bodyLimit = 1000 } = {}) {
  const { app } = otherApp(t, { ajv: ajv as never, bodyLimit })
  app.register(jsonBody, { redact: (text: string) => text.replace(/secret_\w*/g, '[redacted]') })
  const bodies: unknown[] = []
  app.register(async (scope) => {
    scope.post('/', anyBody, async (request) => {
      bodies.push(request.body)
      return 'taken'
    })
    const body = { type: 'object', additionalProperties: false, properties: { name: { type: 'string' } } }
    const whenAbsent = async (request: FastifyRequest) => {
      request.body = { absent: true }
    }
    scope.post('/optional', { ...anyBody, onRequest: whenAbsent }, async (request) => {
      bodies.push(request.body)
      return 'taken'
    })
    scope.post('/strict', { schema: { body } }, async () => 'taken')
    scope.all('/free', async (request) => ({ body: request.body ?? null }))
  })
  async function send(payload: string | Buffer | undefined, headers: Record<string, string> = {}, url = '/') {
    const type = 'content-type' in headers ? {} : { 'content-type': 'application/json' }
    const all = { ...type, ...headers }
    if (all['content-type'] === '') delete (all as Record<string, string>)['content-type']
    const answer = await app.inject({
      method: 'POST',
      url,
      headers: all,
      ...(payload !== undefined && { payload }),
    })
    return answer.statusCode === 200 ? 'taken' : [answer.statusCode, envelopeOf(answer.body).code]
  }
  return { app, send, bodies }
}

t.test('JSON is accepted as it was sent', async (t) => {
  const { send, bodies } = taking(t)
  const texts = ['{"a":1}', '[]', 'null', '"x"', '0', 'false', ' {"ü":"🗝 \\u0000"}\n', '{"a":{"a":"2"}}']
  for (const text of texts) t.equal(await send(text), 'taken', text)
  t.strictSame(
    bodies,
    texts.map((text) => JSON.parse(text)),
  )
})

t.test('a body has at most 100,000 values, whatever its texts contain', async (t) => {
  const { send } = taking(t, { bodyLimit: 1_000_000 })
  const text = JSON.stringify('[{,"\\'.repeat(100_000))
  const nested = (depth: number) => `${'['.repeat(depth)}${text}${']'.repeat(depth)}`
  const list = (count: number) => `[${'0,'.repeat(count - 1)}0]`
  for (const [body, tooMany] of [
    [nested(100_000), nested(100_001)],
    [list(100_000), list(100_001)],
    [`{"a":${list(99_999)}}`, `{"a":${list(100_000)}}`],
  ] as const) {
    t.equal(await send(body), 'taken')
    t.strictSame(await send(tooMany), [400, 'invalid_json'])
  }
})

t.test('the type is application/json in any case, with no charset but UTF-8', async (t) => {
  const { send, bodies } = taking(t)
  for (const type of [
    ...['application/json; charset=utf-8', 'application/json;charset=UTF-8', 'Application/JSON'],
    ...['application/json; charset="utf-8"', 'application/json; foo=bar; Charset=Utf-8'],
  ]) {
    t.equal(await send('{}', { 'content-type': type }), 'taken', type)
  }
  bodies.length = 0
  const charsets = ['charset=iso-8859-1', 'charset="utf-16"', 'charset=', 'charset=utf-8; charset=latin1']
  const refused = [
    ...[...charsets, 'foo=bar; CHARSET=us-ascii', 'charset = utf-7', "charset='utf-8'"].map(
      (parameter) => `application/json; ${parameter}`,
    ),
    ...['text/plain', 'text/json', 'application/x-www-form-urlencoded', 'application/problem+json'],
    ...['application/merge-patch+json', 'application/jsonp', 'application/json-seq', 'json', '*/*', ''],
    'multipart/form-data; boundary=x',
  ]
  for (const type of refused) {
    t.strictSame(await send('{}', { 'content-type': type }), [415, 'unsupported_media_type'], type)
  }
  t.strictSame(bodies, [])
})

t.test('two Content-Type headers are a 415, even two equal ones', async (t) => {
  const { app, bodies } = taking(t)
  for (const other of ['application/json', 'text/plain']) {
    const head = `POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n`
    const [answer] = answersOf(await raw(app, `${head}content-type: ${other}\r\nContent-Length: 2\r\n\r\n{}`))
    t.strictSame([answer!.status, envelopeOf(answer!.body).code], [415, 'unsupported_media_type'], other)
  }
  t.strictSame(bodies, [])
})

t.test('a duplicate member is refused by its path, redacted and shortened', async (t) => {
  const { app, bodies } = taking(t)
  const headers = { 'content-type': 'application/json' }
  const named: Record<string, string> = {
    '{"name":"a","name":"b"}': 'name',
    '{"name":"a","\\u006eame":"b"}': 'name',
    '{"a":[{"b":1,"b":1}]}': 'a.b',
    '{"secret_x":1,"secret_x":2}': '[redacted]',
    '{"\\ud800":1,"\\ud800":2}': '\ufffd',
    [`{"${'x'.repeat(200)}":1,"${'x'.repeat(200)}":2}`]: 'x'.repeat(100),
  }
  for (const [payload, param] of Object.entries(named)) {
    const answer = await app.inject({ method: 'POST', url: '/', headers, payload })
    t.equal(answer.statusCode, 400)
    const error = envelopeOf(answer.body)
    t.match(error, { code: 'invalid_json', message: /more than once/ })
    t.equal(error.param, param)
  }
  t.strictSame(bodies, [])
})

t.test('of a long name, no more is looked at for secrets than may be shown', async (t) => {
  const looked: number[] = []
  const redact = (text: string) => {
    looked.push(text.length)
    return text
  }
  t.equal(shownMember('x'.repeat(200_000), redact), 'x'.repeat(100))
  t.strictSame(looked, [4096])
})

t.test('what is not JSON is refused', async (t) => {
  const { send } = taking(t)
  const texts = [
    '{',
    '{"a":1',
    "{'a':1}",
    '{"a":1,}',
    '{"a":1/**/}',
    'undefined',
    'NaN',
    '{"a":NaN}',
    '{"a":01}',
  ]
  for (const text of [...texts, '\0', '{"a":"\n"}', '{"a":"\u0001"}', '{} {}', '{}{}', '{} x']) {
    t.strictSame(await send(text), [400, 'invalid_json'], JSON.stringify(text))
  }
})

t.test('what is not UTF-8 is refused, not repaired', async (t) => {
  const { send } = taking(t)
  const quoted = (...bytes: number[]) => Buffer.from([0x22, ...bytes, 0x22])
  const wrong = {
    'a lone byte': quoted(0xff),
    'a character cut short': quoted(0xe2, 0x82),
    'an overlong slash': quoted(0xc0, 0xaf),
    'a surrogate': quoted(0xed, 0xa0, 0x80),
    'beyond Unicode': quoted(0xf5, 0x80, 0x80, 0x80),
    Latin1: Buffer.from('"ü"', 'latin1'),
    'UTF-16': Buffer.from('"x"', 'utf16le'),
  }
  for (const [what, bytes] of Object.entries(wrong)) {
    t.strictSame(await send(bytes), [400, 'invalid_json'], what)
  }
})

t.test('a refused body that was read to its end leaves its connection open', async (t) => {
  const { app } = taking(t)
  const head = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json'
  const post = (body: string, charset = 'utf-8') =>
    `${head}; charset=${charset}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  const refused = [post('{x}'), post('{"a":1,"a":2}'), post('"\xff"'), post(''), post('{}', 'latin1')]
  const last = 'GET /free HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
  const statuses = answersOf(await raw(app, [...refused, last].join(''))).map(({ status }) => status)
  t.strictSame(statuses, [400, 400, 400, 400, 415, 200])
})

t.test('an empty body is refused where one is required', async (t) => {
  const { app, send } = taking(t)
  t.strictSame(await send(''), [400, 'invalid_json'])
  t.strictSame(await send(undefined), [400, 'invalid_json'])
  t.strictSame(await send(undefined, { 'content-type': '' }), [400, 'invalid_json'])
  t.strictSame(await send(' \n'), [400, 'invalid_json'])
  t.strictSame(await send('', {}, '/free'), [400, 'invalid_json'], 'although it says that it is JSON')
  const headers = { 'content-type': 'application/json' }
  const { body } = await app.inject({ method: 'POST', url: '/', headers, payload: '' })
  t.equal(envelopeOf(body).message, 'The request body is empty.')
})

t.test('an empty body is what a hook has set for an absent one', async (t) => {
  const { send, bodies } = taking(t)
  t.equal(await send('', {}, '/optional'), 'taken')
  t.equal(await send('{"a":1}', {}, '/optional'), 'taken')
  t.strictSame(bodies, [{ absent: true }, { a: 1 }])
})

t.test('a compressed body is 415, not bad JSON', async (t) => {
  const { send } = taking(t)
  for (const coding of ['gzip', 'br', 'deflate', 'identity, gzip', 'unheard-of']) {
    t.strictSame(
      await send(gzipSync('{}'), { 'content-encoding': coding }),
      [415, 'unsupported_media_type'],
      coding,
    )
  }
  for (const coding of ['identity', 'Identity'])
    t.equal(await send('{}', { 'content-encoding': coding }), 'taken')
})

t.test('a body over the limit is 413, one at the limit is accepted', async (t) => {
  const { send } = taking(t)
  t.equal(await send(JSON.stringify('x'.repeat(998))), 'taken')
  t.strictSame(await send(JSON.stringify('x'.repeat(999))), [413, 'payload_too_large'])
})

t.test('__proto__ and constructor are members like any other', async (t) => {
  const { app, send, bodies } = taking(t)
  for (const member of ['__proto__', 'constructor', 'prototype', 'toString']) {
    const text = `{"${member}":{"polluted":true}}`
    t.equal(await send(text), 'taken')
    t.ok(Object.hasOwn(bodies.at(-1) as object, member))
    const headers = { 'content-type': 'application/json' }
    const answer = await app.inject({ method: 'POST', url: '/strict', headers, payload: text })
    t.equal(answer.statusCode, 400)
    t.match(envelopeOf(answer.body), { code: 'unknown_parameter', param: member })
  }
  t.equal(({} as { polluted?: boolean }).polluted, undefined)
})

t.test('a route without a body schema needs no body', async (t) => {
  const { app } = taking(t)
  for (const method of ['GET', 'POST', 'DELETE', 'PATCH'] as const) {
    t.strictSame((await app.inject({ method, url: '/free' })).json(), { body: null }, method)
  }
})

t.test('routes outside its scope keep their own parsers', async (t) => {
  const { app } = otherApp(t)
  app.post('/text', async (request) => request.body)
  app.register(async (scope) => {
    scope.register(jsonBody)
    scope.post('/json', anyBody, async () => 'taken')
  })
  const headers = { 'content-type': 'text/plain' }
  t.equal((await app.inject({ method: 'POST', url: '/text', headers, payload: 'x' })).body, 'x')
  t.equal((await app.inject({ method: 'POST', url: '/json', headers, payload: 'x' })).statusCode, 415)
})
