/**
 * Bytes that end a connection, and the status of their response. payloads.ts has more ways to write
 * a length, a coding and a chunk.
 */
import { bearer, chunk, chunked, creation, host, lastChunk, message, request, verify } from './requests.ts'

const body = '{"name":"malformed"}'
const large = 'a'.repeat(20_000)

export function fatalBytes(token: string): [what: string, status: number, bytes: string][] {
  const good = verify(token)
  const first = (line: string) => message([line, host, bearer(token)])
  const line = (text: string) => verify(token, text)
  const framed = (text: string) => creation(token, [text], body)
  const chunks = (rest: string) => creation(token, [chunked], rest)
  const old = (bytes: string) => bytes.replace('HTTP/1.1', 'HTTP/1.0')
  const withoutHost = (version: string, ...lines: string[]) =>
    message([`GET /v1/verify ${version}`, bearer(token), ...lines])
  return [
    ['no request', 400, 'nonsense\r\n\r\n'],
    ['a NUL before it', 400, `\0${good}`],
    ['a NUL in the method', 400, first('G\0T /v1/verify HTTP/1.1')],
    ['a NUL in the name of a header', 400, line('X\0A: b')],
    ['a NUL in the key', 400, good.replace(token, `${token}\0`)],
    ['lines that end in CR', 400, good.replaceAll('\r\n', '\r')],
    ['lines that end in LF', 400, good.replaceAll('\r\n', '\n')],
    ['a head that ends in LF', 400, `${good.slice(0, -2)}\n`],
    ['a CR in the path', 400, first('GET /v1/ver\rify HTTP/1.1')],
    ['two CRs at the end of a header', 400, line('X-A: b\r')],
    ['a folded header', 400, line('X-A: b\r\n c')],
    ['a folded coding', 400, framed('Transfer-Encoding:\r\n chunked')],
    ['a protocol in lower case', 400, first('GET /v1/verify http/1.1')],
    ['no version (HTTP/0.9)', 400, 'GET /v1/verify\r\n\r\n'],
    ['another version', 400, withoutHost('HTTP/2.0', host)],
    ['the beginning of HTTP/2', 400, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['an authority as target', 400, first('GET latchkey.test:80 HTTP/1.1')],
    ['CONNECT', 400, request('CONNECT', 'latchkey.test:443', token)],
    [
      'CONNECT with a length',
      400,
      `${request('CONNECT', 'latchkey.test:443', token, 'Content-Length: 4')}abcd`,
    ],
    ['no Host', 400, withoutHost('HTTP/1.1')],
    ['two Hosts', 400, withoutHost('HTTP/1.1', host, host)],
    ['a Host with a blank', 400, withoutHost('HTTP/1.1', 'Host: a b')],
    ['two Hosts, 1,500 headers apart', 400, line([...manyHeaders, host].join('\r\n'))],

    [
      'the same length twice',
      400,
      framed(`Content-Length: ${body.length}\r\nContent-Length: ${body.length}`),
    ],
    ['a length with a sign', 400, framed(`Content-Length: +${body.length}`)],
    ['a length and chunks', 400, creation(token, ['Content-Length: 5', chunked], lastChunk)],
    ['chunks and a length', 400, creation(token, [chunked, 'Content-Length: 5'], lastChunk)],
    ['an empty coding', 400, creation(token, ['Transfer-Encoding: '])],
    [
      'a coding beside chunks',
      400,
      creation(token, ['Transfer-Encoding: gzip, chunked'], chunk('{}') + lastChunk),
    ],
    [
      'chunks in HTTP/1.0',
      400,
      old(creation(token, [chunked, 'Connection: keep-alive'], chunk('{}') + lastChunk)),
    ],
    ['a coding behind the body', 400, chunks(`${chunk(body)}0\r\n${chunked}\r\n\r\n`)],
    ['a chunk of negative size', 400, chunks(`-14\r\n${body}\r\n${lastChunk}`)],
    ['a chunk whose extension has an LF', 400, chunks(`14;a\n${body}\r\n${lastChunk}`)],
    ['a chunk whose data end in LF', 400, chunks(`14\r\n${body}\n${lastChunk}`)],
    ['a chunk that is shorter than it says', 400, chunks(`15\r\n${body}\r\n${lastChunk}`)],
    ['a chunk extension of 20 kB', 400, chunks(`14;${large}\r\n${body}\r\n${lastChunk}`)],

    ['a body that is too large', 413, creation(token, ['Content-Length: 20000'], large)],
    ['a header of 20 kB', 431, line(`X-A: ${large}`)],
    ['trailers of 20 kB', 431, chunks(`${chunk(body)}0\r\nX-A: ${large}\r\n\r\n`)],
    ['an offer to upgrade', 200, line('Connection: Upgrade\r\nUpgrade: websocket')],
  ]
}

/** More than the thousand that Node shows unless it is asked for all. */
export const manyHeaders = Array.from({ length: 1500 }, (_, i) => `h${i}: b`)
