/**
 * Methods, versions, targets and header lines. `{token}` is the caller's key, and `{key}` the id of
 * one.
 */
import fc from 'fast-check'
import { anyBytes, oneOf, weighted, words } from './fuzz-words.ts'

export const wildMethods = weighted(
  [
    9,
    fc.constantFrom(
      ...words(`OPTIONS TRACE PUT GET POST PATCH DELETE PURGE PROPFIND M-SEARCH QUERY LOCK SEARCH MKCOL LINK SOURCE
        CONNECT PRI get Get FOO SSH-2.0 GETT ${'A'.repeat(300)}`),
      ...['', ' GET', 'GET\t', 'GE T', 'G\x00T', '\x16\x03\x01'],
    ),
  ],
  [3, fc.constant('HEAD')],
  [1, anyBytes(6)],
)

export const wildVersions = weighted(
  [3, fc.constantFrom('HTTP/1.0', 'HTTP/1.1')],
  [1, fc.constantFrom('', ...words('HTTP/0.9 HTTP/2.0 HTTP/3 HTTP/1.2 http/1.1 HTTP/1. RTSP/1.0 ICE/1.0'))],
)

const pieces = weighted(
  [
    9,
    oneOf(
      ...words(String.raw`/ // /. /.. /./ /../ %2e %2E%2e %2f %5c \ /v1 /keys /verify /docs /errors /not_found /{key}
        /apk_0 v1 V1 /KEYS /keys/ /openapi.json % %z %zz %0 %00 %0a %0d%0a %20 %25 %2525 %c3 %c3%28 %ff %e2%82 %ed%a0%80
        %f0%9f%94%91 %u0041 ; ;a=b : :id * ** @ ! ~ + , = & " < > | ^ { } [ ] ' $ # #x é 🔑
        constructor __proto__ toString undefined null -1 0`),
      ...['`', ...[200, 1000, 5000, 20_000].map((length) => 'a'.repeat(length))],
      ...['%41', '/a', '%2f'].map((piece) => piece.repeat(800)),
    ),
  ],
  [1, anyBytes(3)],
)
const parameters = weighted(
  [
    9,
    oneOf(
      ...words(`limit=1 limit=100 limit=0 limit= limit limit=1e1 limit=%31 limit=+1 limit[]=1 limit[0]=1 limit[a]=1
        limit=1,2 LIMIT=1 limit=99999999999999999999 limit=%ff status=active status=revoked status=expired status=
        status=ACTIVE status[]=active starting_after={key} starting_after= starting_after=apk_0 starting_after=%00
        starting_after=%zz starting_after[]={key} starting_after=%ed%a0%80 starting_after=${'a'.repeat(3000)}
        __proto__=1 __proto__[limit]=1 constructor=1 constructor[prototype][x]=1 toString=1 length=1
        = =1 & ; %=1 %zz=1 %00=1 %F0%9F=1 ? + %20 # 🔑=1 a.b=1`),
    ),
  ],
  [1, anyBytes(3)],
)
const queries = fc
  .tuple(fc.array(parameters, { minLength: 1, maxLength: 5 }), fc.constantFrom('&', '&&', ';', '?'))
  .map(([all, between]) => `?${all.join(between)}`)
/** So often that it costs something to collect them. */
const repeated = fc
  .tuple(parameters, fc.constantFrom(100, 1500))
  .map(([one, times]) => `?${`${one}&`.repeat(times)}`)
const odd = fc.constantFrom(
  ...words(`* / ? # v1/keys ?limit=1 http://latchkey.test http://latchkey.test/v1/verify HTTPS://x/v1/keys
    http:///v1/keys http://a@b:80/v1/verify?x#y http://[::1]/v1/keys ftp://x/v1/keys http:/v1/keys latchkey.test:443
    // latchkey.test/v1/keys http://x?limit=1 http://%zz/v1/verify`),
  ...[
    '',
    '/v1/verify HTTP/1.1',
    '/v1/ver ify',
    '/v1/verify\t',
    '/v1/verify\x00',
    '/v1/\x7f',
    '/\r',
    '/v1/keys\n',
  ],
)

/** Made of the route's own target, or of nothing. */
export const wildTargets = (route: string): fc.Arbitrary<string> => {
  const some = fc.array(pieces, { minLength: 1, maxLength: 4 }).map((all) => all.join(''))
  return fc.oneof(
    fc.oneof(queries, repeated).map((query) => route + query),
    some.map((path) => route + path),
    some.map((path) => `/${path}`),
    odd,
  )
}

const lines = (name: string, ...values: string[]) => values.map((value) => [`${name}: ${value}`])
/** Only the first two may pass. What a blank behind the key means is left open. */
export const wildAuthorizations: fc.Arbitrary<string[]> = fc.constantFrom(
  ...lines('authorization', 'Bearer {token}', '\t Bearer {token}', 'Bearer {token} '),
  ...lines('Authorization', 'Bearer  {token}', 'Bearer\t{token}', 'bearer {token}', 'BEARER {token}'),
  ...lines('Authorization', 'Bearer "{token}"', 'Bearer {token},', 'Bearer {token}\x80', 'Bearer {token}='),
  ...lines('Authorization', 'Bearer {token}x', 'Bearer {token}\x00', 'Bearer lk_', 'Bearer', '', '{token}'),
  ...lines('Authorization', 'Basic {token}', `Bearer lk_${'a'.repeat(9000)}`),
  [],
  ['Authorization: Bearer {token}', 'Authorization: Bearer {token}'],
  ['Authorization: Bearer x', 'Authorization: Bearer {token}'],
  ['Proxy-Authorization: Bearer {token}'],
  ['Authorization : Bearer {token}'],
  ['X-Api-Key: {token}', 'Cookie: token={token}'],
)

export const wildTypes: fc.Arbitrary<string[]> = fc.constantFrom(
  ...lines('Content-Type', '', 'application/json; charset=utf-8', 'application/json; charset=latin1'),
  ...lines(
    'Content-Type',
    'application/json ;a',
    'application/json, text/html',
    'multipart/form-data; boundary=x',
  ),
  ...lines('Content-Type', 'application/json\x80', '\xff', `application/json;${'a=b;'.repeat(500)}`),
  ...lines(
    'Content-Type',
    ...words(`Application/JSON;charset="utf-8" application/json;charset=utf-16 application/json; text/plain text/json
      application/x-www-form-urlencoded */* application/jsonp application/vnd.api+json application / ; constructor
      __proto__ application/* json null`),
  ),
  [],
  ['Content-Type: application/json', 'Content-Type: text/plain'],
  ['Content-Type: text/plain', 'Content-Type: application/json'],
)

/** A name, and values between bars. */
const known = `Content-Encoding: gzip|identity|br, gzip|IDENTITY||x
Expect: 100-continue|x||200-ok|100-continue, x
Connection: close|keep-alive|upgrade|te|authorization|x-request-id, close|
Upgrade: websocket|h2c|TLS/1.0|
HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA|
Host: elsewhere.test||a, b
Content-Length: 0|5|+5|-1|0x5|5, 5|5 5|1e1||99999999999999999999| 0|00005
Transfer-Encoding: chunked|identity|gzip, chunked|chunked, chunked|xchunked|chunked;a=b||CHUNKED
TE: trailers|chunked;q=1
Trailer: authorization|x
X-Forwarded-For: 127.0.0.1|1.2.3.4, 5.6.7.8|::1|nonsense||${'x'.repeat(5000)}
X-Forwarded-Host: evil.test|a, b|
X-Forwarded-Proto: https|gopher
Forwarded: for=1.2.3.4;host=evil|""
X-HTTP-Method-Override: DELETE
X-Request-Id: req_mine|\xff
Range: bytes=0-0|bytes=9-1|bytes=0-,0-,0-|lines=1
If-Match: *|"x"
If-None-Match: *|"x"|W/"x"
If-Modified-Since: Sat, 21 Nov 2099 00:00:00 GMT|never
If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT
Accept: text/html|application/xml;q=1||*/*;q=0
Accept-Encoding: gzip|identity;q=0, *;q=0
Accept-Version: 1.x|9.9.9|*
Cookie: a=b|=|__proto__=1|${'a'.repeat(4000)}
Origin: https://evil.test|null
Access-Control-Request-Method: DELETE
User-Agent: |${'x'.repeat(3000)}|\xff\xfe|%s%n()
Max-Forwards: 0
Keep-Alive: timeout=0|max=-1
Proxy-Connection: keep-alive
Sec-WebSocket-Key: x
__proto__: x
constructor: x`
  .split('\n')
  .map((line) => /(.*?): (.*)/.exec(line)!.slice(1) as [name: string, values: string])
const knownHeaders = fc.constantFrom(
  ...known.flatMap(([name, values]) => values.split('|').map((value) => `${name}: ${value}`)),
)
const fieldByte = fc.integer({ min: 0x20, max: 0xff }).filter((byte) => byte !== 0x7f)
const fieldValue = fc.string({ unit: fieldByte.map((byte) => String.fromCharCode(byte)), maxLength: 20 })
const fieldName = fc.string({
  unit: fc.constantFrom(..."abcXYZ019!#$%&'*+-.^_`|~"),
  minLength: 1,
  maxLength: 10,
})
/** Mostly such as HTTP allows. */
const anyHeader = fc
  .tuple(
    weighted([9, fieldName.map((name) => `X${name}`)], [1, anyBytes(5)]),
    weighted([9, fieldValue], [1, anyBytes(20)]),
  )
  .map((header) => header.join(': '))
const folded = fc.constantFrom('X-Folded: a\r\n b', 'X-Bare: a\nb', 'X-Bare: a\rb')

export const wildHeaders: fc.Arbitrary<string[]> = weighted(
  [12, fc.array(weighted([8, knownHeaders], [3, anyHeader], [1, folded]), { minLength: 1, maxLength: 4 })],
  [
    1,
    fc.constantFrom(50, 500, 1500, 3000).map((count) => Array.from({ length: count }, (_, i) => `x${i}: y`)),
  ],
  [1, fc.constantFrom(7000, 15_000, 17_000).map((length) => [`X-Long: ${'x'.repeat(length)}`])],
)
