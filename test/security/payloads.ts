/**
 * Requests that two servers may read differently: where the first ends, and so whether the hidden
 * one is a request. Each trick is built for both disagreements, the one in front reading on where
 * the other stops and the other way round.
 */
import {
  bearer,
  chunk,
  chunked,
  creation,
  host,
  json,
  lastChunk,
  lengthOf,
  message,
  request,
  verify,
} from './requests.ts'

type Bytes = (hidden: string) => string

export interface Smuggling {
  what: string
  /** With these requests hidden in it. */
  bytes: Bytes
  /** One good request and then the hidden ones, beyond doubt: a server must run all of them. */
  plain: boolean
}

/** Lines that say `Transfer-Encoding: chunked`, or that one might take for it. */
const codings: Record<string, string> = {
  plain: 'Transfer-Encoding: chunked',
  'without a space': 'Transfer-Encoding:chunked',
  'after a tab': 'Transfer-Encoding:\tchunked',
  'after a vertical tab': 'Transfer-Encoding: \x0bchunked',
  'after a NUL': 'Transfer-Encoding: \0chunked',
  'after a hard space': 'Transfer-Encoding: \xa0chunked',
  'before a NUL': 'Transfer-Encoding: chunked\0',
  'before a space': 'Transfer-Encoding: chunked ',
  'in other letters': 'tRANSFER-eNCODING: cHUNKED',
  'with an x before': 'Transfer-Encoding: xchunked',
  'with an x behind': 'Transfer-Encoding: chunkedx',
  'with a parameter': 'Transfer-Encoding: chunked;q=1',
  'in quotes': 'Transfer-Encoding: "chunked"',
  'in single quotes': "Transfer-Encoding: 'chunked'",
  'behind a comma': 'Transfer-Encoding: ,chunked',
  'before a comma': 'Transfer-Encoding: chunked,',
  'before identity': 'Transfer-Encoding: chunked, identity',
  'behind identity': 'Transfer-Encoding: identity, chunked',
  'behind gzip': 'Transfer-Encoding: gzip, chunked',
  'before identity, on two lines': 'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity',
  'behind identity, on two lines': 'Transfer-Encoding: identity\r\nTransfer-Encoding: chunked',
  'behind nonsense, on two lines': 'Transfer-Encoding: nonsense\r\nTransfer-Encoding: chunked',
  twice: 'Transfer-Encoding: chunked, chunked',
  'on two lines': 'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked',
  empty: 'Transfer-Encoding: ',
  'empty and then chunked': 'Transfer-Encoding: \r\nTransfer-Encoding: chunked',
  folded: 'Transfer-Encoding:\r\n chunked',
  'folded by a tab': 'Transfer-Encoding:\r\n\tchunked',
  'folded in the middle': 'Transfer-Encoding: chun\r\n ked',
  'in the fold of another': 'X-A: b\r\n Transfer-Encoding: chunked',
  'behind a bare LF': 'X-A: b\nTransfer-Encoding: chunked',
  'behind a bare CR': 'X-A: b\rTransfer-Encoding: chunked',
  'before a bare LF': 'Transfer-Encoding: chunked\nX-A: b',
  'with a space before the colon': 'Transfer-Encoding : chunked',
  'with a tab before the colon': 'Transfer-Encoding\t: chunked',
  'with an LF before the colon': 'Transfer-Encoding\n: chunked',
  'with an underscore': 'Transfer_Encoding: chunked',
  'with a NUL in its name': 'Transfer-\0Encoding: chunked',
  'without a colon': 'Transfer-Encoding chunked',
  'of the content': 'Content-Encoding: chunked',
  'of one hop': 'Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked',
}

const meaningless = ['with an underscore', 'of the content']

/** For a body of n bytes. */
const lengths: Record<string, (n: number) => string> = {
  'with a sign': (n) => `Content-Length: +${n}`,
  negative: (n) => `Content-Length: -${n}`,
  'with a space in it': (n) => `Content-Length: ${String(n)[0]} ${String(n).slice(1)}`,
  'behind spaces': (n) => `Content-Length:    ${n}   `,
  'behind zeros': (n) => `Content-Length: 000${n}`,
  'in base 16': (n) => `Content-Length: 0x${n.toString(16)}`,
  'with an exponent': (n) => `Content-Length: ${n}e0`,
  'with a point': (n) => `Content-Length: ${n}.0`,
  'in quotes': (n) => `Content-Length: "${n}"`,
  'with a unit': (n) => `Content-Length: ${n};a=b`,
  'past 32 bits': (n) => `Content-Length: ${2n ** 32n + BigInt(n)}`,
  'past 64 bits': (n) => `Content-Length: ${2n ** 64n + BigInt(n)}`,
  empty: () => 'Content-Length: ',
  'before a NUL': (n) => `Content-Length: ${n}\0`,
  'after a vertical tab': (n) => `Content-Length: \x0b${n}`,
  'in a list': (n) => `Content-Length: ${n}, ${n}`,
  'in a list behind 0': (n) => `Content-Length: 0, ${n}`,
  'in a list before 0': (n) => `Content-Length: ${n}, 0`,
  twice: (n) => `Content-Length: ${n}\r\nContent-Length: ${n}`,
  'behind 0': (n) => `Content-Length: 0\r\nContent-Length: ${n}`,
  'before 0': (n) => `Content-Length: ${n}\r\nContent-Length: 0`,
  folded: (n) => `Content-Length:\r\n ${n}`,
  'in the fold of another': (n) => `X-A: b\r\n Content-Length: ${n}`,
  'with a space before the colon': (n) => `Content-Length : ${n}`,
  'with an underscore': (n) => `Content_Length: ${n}`,
  'behind a bare LF': (n) => `X-A: b\nContent-Length: ${n}`,
  'behind a bare CR': (n) => `X-A: b\rContent-Length: ${n}`,
  'of one hop': (n) => `Connection: Content-Length\r\nContent-Length: ${n}`,
}

/** Chunks in or behind which the hidden requests are. */
const chunks: Record<string, (hidden: string) => string> = {
  'an extension that ends in LF': (hidden) => `2;\nxx\r\n${chunk(`0\r\n\r\n${hidden}`)}${lastChunk}`,
  'an extension with an LF in it': (hidden) =>
    `2;a\n${(hidden.length + 9).toString(16)}\r\nxx\r\n0\r\n\r\n${hidden}`,
  'an extension with a CR in it': (hidden) => `2;a\rb\r\nxx\r\n${chunk(hidden)}${lastChunk}`,
  'a size that ends in LF': (hidden) => `2\nxx\r\n${chunk(`0\r\n\r\n${hidden}`)}${lastChunk}`,
  'a size that ends in CR': (hidden) => `2\rxx\r\n${chunk(`0\r\n\r\n${hidden}`)}${lastChunk}`,
  'data that end in LF': (hidden) => `2\r\nxx\n${chunk(`0\r\n\r\n${hidden}`)}${lastChunk}`,
  'data that end in two other bytes': (hidden) => `2\r\nxxyy${chunk(`0\r\n\r\n${hidden}`)}${lastChunk}`,
  'data that do not end': (hidden) => `2\r\nxx${chunk(`0\r\n\r\n${hidden}`)}${lastChunk}`,
  'data that go on': (hidden) => `2\r\nxxxx\r\n${chunk(hidden)}${lastChunk}`,
  'a size past 32 bits': (hidden) => `100000002\r\nxx\r\n0\r\n\r\n${hidden}`,
  'a size past 64 bits': (hidden) => `10000000000000002\r\nxx\r\n0\r\n\r\n${hidden}`,
  'a size of sixteen f': (hidden) => `ffffffffffffffff\r\nxx\r\n0\r\n\r\n${hidden}`,
  'a negative size': (hidden) => `-2\r\nxx\r\n0\r\n\r\n${hidden}`,
  'a size with a sign': (hidden) => `+2\r\nxx\r\n0\r\n\r\n${hidden}`,
  'a size in base 16 that says so': (hidden) => `0x2\r\nxx\r\n0\r\n\r\n${hidden}`,
  'a size with an underscore': (hidden) => `0_2\r\nxx\r\n0\r\n\r\n${hidden}`,
  'a size behind a space': (hidden) => ` 2\r\nxx\r\n0\r\n\r\n${hidden}`,
  'a size before a space': (hidden) => `2 \r\nxx\r\n0\r\n\r\n${hidden}`,
  'no size': (hidden) => `\r\nxx\r\n0\r\n\r\n${hidden}`,
  'an end in LFs': (hidden) => `2\r\nxx\r\n0\n\n${hidden}`,
  'an end in one LF': (hidden) => `2\r\nxx\r\n0\r\n\n${hidden}`,
  'no empty line at their end': (hidden) => `2\r\nxx\r\n0\r\n${hidden}`,
  'a length behind them': (hidden) => `2\r\nxx\r\n0\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  'a coding behind them': (hidden) =>
    `2\r\nxx\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n${chunk(hidden)}${lastChunk}`,
  'a folded header behind them': (hidden) => `2\r\nxx\r\n0\r\nX-A: b\r\n \r\n\r\n${hidden}`,
  'a header without a colon behind them': (hidden) => `2\r\nxx\r\n0\r\nnonsense\r\n\r\n${hidden}`,
}

export function payloads(token: string): Smuggling[] {
  const all: Smuggling[] = []
  const add = (what: string, bytes: Bytes, plain = false) => all.push({ what, bytes, plain })
  const create =
    (framing: readonly string[], rest: Bytes): Bytes =>
    (hidden) =>
      creation(token, framing, rest(hidden))
  const inChunks: Bytes = (hidden) => chunk(hidden) + lastChunk
  const behindChunks: Bytes = (hidden) => lastChunk + hidden

  for (const [how, coding] of Object.entries(codings)) {
    const whole = (hidden: string) => lengthOf(lastChunk + hidden)
    add(`a length over all, and a coding ${how}`, (hidden) =>
      create([whole(hidden), coding], behindChunks)(hidden),
    )
    add(`a coding ${how}, and a length over all`, (hidden) =>
      create([coding, whole(hidden)], behindChunks)(hidden),
    )
    add(`a coding ${how}, and no length`, create([coding], inChunks))
    if (meaningless.includes(how)) continue
    add(`a coding ${how} over all, and a short length`, (hidden) =>
      creation(token, [coding, lengthOf(`${hidden.length.toString(16)}\r\n`)], inChunks(hidden)),
    )
  }
  for (const [how, length] of Object.entries(lengths)) {
    const plain = meaningless.includes(how)
    add(
      `a length ${how} over all, of a GET`,
      (hidden) => verify(token, length(hidden.length)) + hidden,
      plain,
    )
    if (!plain) add(`a length ${how} over all`, (hidden) => creation(token, [length(hidden.length)], hidden))
  }
  for (const [how, body] of Object.entries(chunks)) add(`chunks with ${how}`, create([chunked], body))
  for (const [what, bytes] of Object.entries(plain(token))) add(what, bytes, true)
  for (const [what, bytes] of Object.entries(others(token))) add(what, bytes)
  return all
}

const plain = (token: string): Record<string, Bytes> => ({
  'nothing between': (hidden) => verify(token) + hidden,
  'hidden ones behind a length': (hidden) => creation(token, ['Content-Length: 2'], `{}${hidden}`),
  'hidden ones behind chunks': (hidden) => creation(token, [chunked], chunk('{}') + lastChunk + hidden),
  'hidden ones behind chunks with an extension and a trailer': (hidden) =>
    creation(token, [chunked], `2;a=b\r\n{}\r\n0;c\r\nX-A: b\r\n\r\n${hidden}`),
})

function others(token: string): Record<string, Bytes> {
  const good = verify(token)
  const inChunks: Bytes = (hidden) => chunk(hidden) + lastChunk
  /** The hidden ones as a body with a length. */
  const sent =
    (method: string, target: string, ...lines: string[]): Bytes =>
    (hidden) =>
      request(method, target, token, ...lines, lengthOf(hidden)) + hidden
  const created = (...lines: string[]): Bytes => sent('POST', '/v1/keys', json, ...lines)
  const edited =
    (bytes: Bytes, edit: (head: string) => string): Bytes =>
    (hidden) =>
      edit(bytes(hidden).slice(0, -hidden.length)) + hidden
  const old =
    (framing: Bytes, rest: Bytes): Bytes =>
    (hidden) =>
      creation(token, ['Connection: keep-alive', ...framing(hidden).split('\n')], rest(hidden)).replace(
        'HTTP/1.1',
        'HTTP/1.0',
      )
  const upgrade = ['Connection: Upgrade', 'Upgrade: websocket']
  return {
    'HTTP/1.0 with a length over all, and chunks': old(
      (hidden) => `${lengthOf(lastChunk + hidden)}\n${chunked}`,
      (hidden) => lastChunk + hidden,
    ),
    'HTTP/1.0 with chunks over all': old(() => chunked, inChunks),
    'HTTP/1.0 with hidden ones behind its chunks': old(
      () => chunked,
      (hidden) => chunk('{}') + lastChunk + hidden,
    ),
    'HTTP/1.0 without keep-alive': (hidden) => good.replace('HTTP/1.1', 'HTTP/1.0') + hidden,
    'HTTP/0.9': (hidden) => `GET /v1/verify\r\n${hidden}`,
    'lines that end in LF': edited(created(), (head) => head.replaceAll('\r\n', '\n')),
    'a head that ends in LF': edited(created(), (head) => `${head.slice(0, -2)}\n`),
    'a last line that ends in LF': edited(created(), (head) => `${head.slice(0, -4)}\n\r\n`),
    'a first header that begins with a space': (hidden) =>
      message(['POST /v1/keys HTTP/1.1', ` ${lengthOf(hidden)}`, host, bearer(token), json], hidden),
    'two Hosts': sent('GET', '/v1/verify', 'Host: elsewhere.test'),
    'absolute-form with another Host, and a body': sent('GET', 'http://elsewhere.test/v1/verify'),
    'a body of a GET': sent('GET', '/v1/verify'),
    'chunks of a GET': (hidden) => verify(token, chunked) + inChunks(hidden),
    'a body of a HEAD': sent('HEAD', '/v1/verify'),
    'a body of a DELETE': sent('DELETE', '/v1/keys/apk_0'),
    'chunks of a DELETE': (hidden) => request('DELETE', '/v1/keys/apk_0', token, chunked) + inChunks(hidden),
    'a body that is not read, as there is no key': (hidden) => creation('nope', [lengthOf(hidden)], hidden),
    'a body that is too large': (hidden) =>
      creation(token, [`Content-Length: ${20_000 + hidden.length}`], ' '.repeat(20_000) + hidden),
    'chunks that are too large': (hidden) =>
      creation(token, [chunked], chunk(' '.repeat(20_000)) + inChunks(hidden)),
    'a body of another media type': sent('POST', '/v1/keys', 'Content-Type: text/plain'),
    'an expectation before the body': created('Expect: 100-continue'),
    'an unknown expectation before the body': created('Expect: x 100-continue'),
    'an expectation of a GET': sent('GET', '/v1/verify', 'Expect: 100-continue'),
    'an offer to upgrade, and a body': created(...upgrade),
    'an offer to upgrade, and hidden ones as the body of the next': (hidden) =>
      verify(token, ...upgrade) + created()(hidden),
    'an offer of HTTP/2, and chunks': (hidden) =>
      creation(
        token,
        ['Connection: Upgrade, HTTP2-Settings', 'HTTP2-Settings: AAMAAABkAAQAAP__', 'Upgrade: h2c', chunked],
        inChunks(hidden),
      ),
    CONNECT: (hidden) => request('CONNECT', 'latchkey.test:443', token) + hidden,
    'CONNECT with a length': sent('CONNECT', 'latchkey.test:443'),
    'a request that closes': (hidden) => verify(token, 'Connection: close') + hidden,
    'no request': (hidden) => `nonsense\r\n\r\n${hidden}`,
    'a request without Host': (hidden) => good.replace(`${host}\r\n`, '') + hidden,
    'headers that are too large': (hidden) => verify(token, `X-A: ${'a'.repeat(17_000)}`) + hidden,
  }
}
