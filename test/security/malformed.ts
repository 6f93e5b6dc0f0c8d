/** Requests that are not HTTP/1.1, and what each is refused as. Those of test/api/parser-errors.test.ts are not repeated. */
import type { Code } from '../api/expect-error.ts'
import { bearer, chunk, creation, host, lastChunk, message, verify } from './requests.ts'

export interface Malformed {
  what: string
  code: Code
  bytes: string
}

const body = '{"name":"malformed"}'

export function malformed(token: string): Malformed[] {
  const good = verify(token)
  const withLine = (line: string) => verify(token, line)
  const first = (line: string) => message([line, host, bearer(token)])
  const framed = (line: string) => creation(token, [line], body)
  const chunked = (rest: string) => creation(token, ['Transfer-Encoding: chunked'], rest)
  const bad = (what: string, bytes: string): Malformed => ({ what, code: 'bad_request', bytes })
  const large = (what: string, bytes: string): Malformed => ({ what, code: 'headers_too_large', bytes })

  return [
    bad('a NUL before it', `\0${good}`),
    bad('a NUL in the method', first('G\0T /v1/verify HTTP/1.1')),
    bad('a NUL in the name of a header', withLine('X\0A: b')),
    bad('a NUL in the key', good.replace(token, `${token}\0`)),
    bad('a NUL in the length', framed(`Content-Length: ${body.length}\0`)),

    bad('lines that end in CR', good.replaceAll('\r\n', '\r')),
    bad('lines that end in LF', good.replaceAll('\r\n', '\n')),
    bad('a first line that ends in LF', good.replace('\r\n', '\n')),
    bad('a head that ends in LF', `${good.slice(0, -2)}\n`),
    bad('a CR in the path', first('GET /v1/ver\rify HTTP/1.1')),
    bad('an LF in the path', first('GET /v1/ver\nify HTTP/1.1')),
    bad('two CRs at the end of a header', withLine('X-A: b\r')),

    bad('a folded header', withLine('X-A: b\r\n c')),
    bad('a header folded by a tab', withLine('X-A: b\r\n\tc')),
    bad('a folded Authorization', good.replace('Bearer ', 'Bearer\r\n ')),
    bad('a folded Host', good.replace('latchkey', 'latchkey\r\n ')),
    bad('a folded length', framed(`Content-Length:\r\n ${body.length}`)),
    bad('a folded coding', creation(token, ['Transfer-Encoding:\r\n chunked'], chunk(body) + lastChunk)),
    bad(
      'a first header that is folded',
      message(['GET /v1/verify HTTP/1.1', ' X-A: b', host, bearer(token)]),
    ),

    bad('the same length twice', framed(`Content-Length: ${body.length}\r\nContent-Length: ${body.length}`)),
    bad('a list of lengths', framed(`Content-Length: ${body.length}, ${body.length}`)),
    bad('an empty length', framed('Content-Length: ')),
    bad('a length past 64 bits', framed(`Content-Length: ${2n ** 64n + BigInt(body.length)}`)),
    bad('a length with a sign', framed(`Content-Length: +${body.length}`)),
    bad('a hexadecimal length', framed('Content-Length: 0x14')),
    bad(
      'chunks and then a length',
      creation(token, ['Transfer-Encoding: chunked', 'Content-Length: 5'], lastChunk),
    ),
    bad('a length that comes after the body', chunked(`${chunk(body)}0\r\nContent-Length: 20\r\n\r\n`)),
    bad(
      'a coding that comes after the body',
      chunked(`${chunk(body)}0\r\nTransfer-Encoding: chunked\r\n\r\n`),
    ),

    bad('a chunk of negative size', chunked(`-14\r\n${body}\r\n${lastChunk}`)),
    bad('a chunk of size 0x14', chunked(`0x14\r\n${body}\r\n${lastChunk}`)),
    bad('a chunk without size', chunked(`\r\n${body}\r\n${lastChunk}`)),
    bad('a chunk past 64 bits', chunked(`10000000000000014\r\n${body}\r\n${lastChunk}`)),
    bad('a chunk whose size ends in LF', chunked(`14\n${body}\r\n${lastChunk}`)),
    bad('a chunk whose extension has an LF', chunked(`14;a\n${body}\r\n${lastChunk}`)),
    bad('a chunk whose extension has a CR', chunked(`14;a\rb\r\n${body}\r\n${lastChunk}`)),
    bad('a chunk whose data end in LF', chunked(`14\r\n${body}\n${lastChunk}`)),
    bad('a chunk that is longer than it says', chunked(`13\r\n${body}\r\n${lastChunk}`)),
    bad('a chunk that is shorter than it says', chunked(`15\r\n${body}\r\n${lastChunk}`)),
    bad('chunks that end in LFs', chunked(`${chunk(body)}0\n\n`)),
    bad('a folded header after the chunks', chunked(`${chunk(body)}0\r\nX-A: b\r\n c\r\n\r\n`)),
    bad('a chunk extension of 20 kB', chunked(`14;${'a'.repeat(20_000)}\r\n${body}\r\n${lastChunk}`)),
    large(
      'headers of 20 kB after the chunks',
      chunked(`${chunk(body)}0\r\nX-A: ${'a'.repeat(20_000)}\r\n\r\n`),
    ),

    large('a key of 16 KiB', good.replace(token, `lk_${'a'.repeat(16 * 1024)}`)),
    large('a key of 17 KiB', good.replace(token, `lk_${'a'.repeat(17 * 1024)}`)),

    bad('tabs between its words', first('GET\t/v1/verify\tHTTP/1.1')),
    bad('a protocol in small letters', first('GET /v1/verify http/1.1')),
    bad('no version (HTTP/0.9)', 'GET /v1/verify\r\n\r\n'),
    bad('an authority for a target', first('GET latchkey.test:80 HTTP/1.1')),
    bad('the beginning of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
    bad('the beginning of TLS', '\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03'),
    bad('CONNECT', message(['CONNECT latchkey.test:443 HTTP/1.1', host, bearer(token)])),
    bad(
      'CONNECT and a length',
      message(['CONNECT latchkey.test:443 HTTP/1.1', host, bearer(token), 'Content-Length: 4'], 'abcd'),
    ),
  ]
}
