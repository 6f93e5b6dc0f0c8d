/** Methods, versions and header lines. `{token}` is the caller's key. */
import fc from 'fast-check'
import { anyBytes } from './fuzz-bodies.ts'

export type Header = readonly [name: string, value: string]

export const wildMethods = fc.oneof(
  {
    weight: 9,
    arbitrary: fc.constantFrom(
      ...[
        'HEAD',
        'OPTIONS',
        'TRACE',
        'PUT',
        'GET',
        'POST',
        'PATCH',
        'DELETE',
        'PURGE',
        'PROPFIND',
        'M-SEARCH',
      ],
      ...[
        'QUERY',
        'LOCK',
        'SEARCH',
        'MKCOL',
        'LINK',
        'SOURCE',
        'CONNECT',
        'PRI',
        'get',
        'Get',
        'FOO',
        '',
        ' GET',
      ],
      ...['GET\t', 'GE T', 'G\x00T', 'SSH-2.0', '\x16\x03\x01', 'GETT', 'A'.repeat(300)],
    ),
  },
  { weight: 3, arbitrary: fc.constant('HEAD') },
  { weight: 1, arbitrary: anyBytes(6) },
)

export const wildVersions = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('HTTP/1.0', 'HTTP/1.1') },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      'HTTP/0.9',
      'HTTP/2.0',
      'HTTP/3',
      'HTTP/1.2',
      'http/1.1',
      'HTTP/1.',
      '',
      'RTSP/1.0',
      'ICE/1.0',
    ),
  },
)

/** All but the first should be refused; of some only the specification of HTTP knows. */
export const wildAuthorizations: fc.Arbitrary<Header[]> = fc.constantFrom<Header[]>(
  [['Authorization', 'Bearer {token}']],
  [],
  [['authorization', 'Bearer {token}']],
  [['AUTHORIZATION', '\t Bearer {token}']],
  [['Authorization', 'Bearer {token} ']],
  [['Authorization', 'Bearer  {token}']],
  [['Authorization', 'Bearer\t{token}']],
  [['Authorization', 'bearer {token}']],
  [['Authorization', 'BEARER {token}']],
  [['Authorization', 'Bearer "{token}"']],
  [['Authorization', 'Bearer {token},']],
  [['Authorization', 'Bearer {token}\x80']],
  [['Authorization', 'Bearer {token}=']],
  [['Authorization', 'Bearer {token}x']],
  [['Authorization', 'Bearer {token}\x00']],
  [['Authorization', 'Bearer lk_']],
  [['Authorization', 'Bearer']],
  [['Authorization', '']],
  [['Authorization', '{token}']],
  [['Authorization', 'Basic {token}']],
  [['Authorization', `Bearer lk_${'a'.repeat(9000)}`]],
  [
    ['Authorization', 'Bearer {token}'],
    ['Authorization', 'Bearer {token}'],
  ],
  [
    ['Authorization', 'Bearer x'],
    ['Authorization', 'Bearer {token}'],
  ],
  [['Proxy-Authorization', 'Bearer {token}']],
  [['Authorization ', 'Bearer {token}']],
  [
    ['X-Api-Key', '{token}'],
    ['Cookie', 'token={token}'],
  ],
)

export const wildTypes: fc.Arbitrary<Header[]> = fc.oneof(
  fc
    .constantFrom(
      ...[
        'application/json; charset=utf-8',
        'Application/JSON;charset="utf-8"',
        'application/json;charset=utf-16',
      ],
      ...[
        'application/json; charset=latin1',
        'application/json;',
        'application/json ;a',
        'application/json, text/html',
      ],
      ...[
        'text/plain',
        'text/json',
        'application/x-www-form-urlencoded',
        'multipart/form-data; boundary=x',
        '*/*',
        '',
      ],
      ...[
        'application/jsonp',
        'application/vnd.api+json',
        'application',
        '/',
        ';',
        'constructor',
        '__proto__',
        '\xff',
      ],
      ...['application/json\x80', `application/json;${'a=b;'.repeat(500)}`, 'application/*', 'json', 'null'],
    )
    .map((type): Header[] => [['Content-Type', type]]),
  fc.constant<Header[]>([]),
  fc.constant<Header[]>([
    ['Content-Type', 'application/json'],
    ['Content-Type', 'text/plain'],
  ]),
  fc.constant<Header[]>([
    ['Content-Type', 'text/plain'],
    ['Content-Type', 'application/json'],
  ]),
)

const known: [name: string, ...values: string[]][] = [
  ['Content-Encoding', 'gzip', 'identity', 'br, gzip', 'IDENTITY', '', 'x'],
  ['Expect', '100-continue', 'x', '', '200-ok', '100-continue, x'],
  ['Connection', 'close', 'keep-alive', 'upgrade', 'te', 'authorization', 'x-request-id, close', ''],
  ['Upgrade', 'websocket', 'h2c', 'TLS/1.0', ''],
  ['HTTP2-Settings', 'AAMAAABkAAQCAAAAAAIAAAAA', ''],
  ['Host', 'elsewhere.test', '', 'a, b'],
  [
    'Content-Length',
    '0',
    '5',
    '+5',
    '-1',
    '0x5',
    '5, 5',
    '5 5',
    '1e1',
    '',
    '99999999999999999999',
    ' 0',
    '00005',
  ],
  [
    'Transfer-Encoding',
    'chunked',
    'identity',
    'gzip, chunked',
    'chunked, chunked',
    'xchunked',
    'chunked;a=b',
    '',
    'CHUNKED',
  ],
  ['TE', 'trailers', 'chunked;q=1'],
  ['Trailer', 'authorization', 'x'],
  ['X-Forwarded-For', '127.0.0.1', '1.2.3.4, 5.6.7.8', '::1', 'nonsense', '', 'x'.repeat(5000)],
  ['X-Forwarded-Host', 'evil.test', 'a, b', ''],
  ['X-Forwarded-Proto', 'https', 'gopher'],
  ['Forwarded', 'for=1.2.3.4;host=evil', '""'],
  ['X-HTTP-Method-Override', 'DELETE'],
  ['X-Request-Id', 'req_mine', '\xff'],
  ['Range', 'bytes=0-0', 'bytes=9-1', 'bytes=0-,0-,0-', 'lines=1'],
  ['If-Match', '*', '"x"'],
  ['If-None-Match', '*', '"x"', 'W/"x"'],
  ['If-Modified-Since', 'Sat, 21 Nov 2099 00:00:00 GMT', 'never'],
  ['If-Unmodified-Since', 'Thu, 01 Jan 1970 00:00:00 GMT'],
  ['Accept', 'text/html', 'application/xml;q=1', '', '*/*;q=0'],
  ['Accept-Encoding', 'gzip', 'identity;q=0, *;q=0'],
  ['Accept-Version', '1.x', '9.9.9', '*'],
  ['Cookie', 'a=b', '=', '__proto__=1', 'a'.repeat(4000)],
  ['Origin', 'https://evil.test', 'null'],
  ['Access-Control-Request-Method', 'DELETE'],
  ['User-Agent', '', 'x'.repeat(3000), '\xff\xfe', '%s%n()'],
  ['Max-Forwards', '0'],
  ['Keep-Alive', 'timeout=0', 'max=-1'],
  ['Proxy-Connection', 'keep-alive'],
  ['Sec-WebSocket-Key', 'x'],
  ['__proto__', 'x'],
  ['constructor', 'x'],
]
const knownHeaders = fc.constantFrom(
  ...known.flatMap(([name, ...values]) => values.map((value): Header => [name, value])),
)
const tokenCharacter = fc.constantFrom(..."abcXYZ019!#$%&'*+-.^_`|~")
const fieldByte = fc.integer({ min: 0x20, max: 0xff }).filter((byte) => byte !== 0x7f)
const fieldValue = fc.string({ unit: fieldByte.map((byte) => String.fromCharCode(byte)), maxLength: 20 })
const fieldName = fc.string({ unit: tokenCharacter, minLength: 1, maxLength: 10 }).map((name) => `X${name}`)
/** Mostly such as HTTP allows. */
const anyHeader: fc.Arbitrary<Header> = fc.tuple(
  fc.oneof({ weight: 9, arbitrary: fieldName }, { weight: 1, arbitrary: anyBytes(5) }),
  fc.oneof({ weight: 9, arbitrary: fieldValue }, { weight: 1, arbitrary: anyBytes(20) }),
)
const folded: fc.Arbitrary<Header> = fc.constantFrom<Header>(
  ['X-Folded', 'a\r\n b'],
  ['X-Bare', 'a\nb'],
  ['X-Bare', 'a\rb'],
)
const manyHeaders = fc
  .constantFrom(50, 500, 1500, 3000)
  .map((count) => Array.from({ length: count }, (_, i): Header => [`x${i}`, 'y']))

export const wildHeaders: fc.Arbitrary<Header[]> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.array(
      fc.oneof(
        { weight: 8, arbitrary: knownHeaders },
        { weight: 3, arbitrary: anyHeader },
        { weight: 1, arbitrary: folded },
      ),
      { minLength: 1, maxLength: 4 },
    ),
  },
  { weight: 1, arbitrary: manyHeaders },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom(7000, 15_000, 17_000)
      .map((length): Header[] => [['X-Long', 'x'.repeat(length)]]),
  },
)
