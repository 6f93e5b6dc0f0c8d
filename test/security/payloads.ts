/**
 * Requests that two servers may read differently: where the first ends, and so whether the hidden one is a request. Each trick
 * is built for both disagreements, the one in front reading on where the other stops and the other way round.
 */
import { bearer, chunk, creation, host, json, lastChunk, message, verify } from './requests.ts'

export interface Payload {
  what: string
  bytes: string
  /** One good request and then the hidden ones, beyond doubt: who reads it alone has to run all of them. */
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

export function payloads(token: string, hidden: string): Payload[] {
  const all: Payload[] = []
  const add = (what: string, bytes: string, plain = false) => all.push({ what, bytes, plain })
  const size = `${hidden.length.toString(16)}\r\n`

  add('nothing between', verify(token) + hidden, true)
  add(
    'chunks, and hidden ones behind',
    creation(token, [codings.plain!], chunk('{}') + lastChunk + hidden),
    true,
  )
  add('a length, and hidden ones behind', creation(token, ['Content-Length: 2'], `{}${hidden}`), true)
  add(
    'chunks with an extension and a header behind',
    creation(token, [codings.plain!], `2;a=b\r\n{}\r\n0;c\r\nX-A: b\r\n\r\n${hidden}`),
    true,
  )

  for (const [how, coding] of Object.entries(codings)) {
    const behind = `0\r\n\r\n${hidden}`
    add(
      `a length over all, and a coding ${how}`,
      creation(token, [`Content-Length: ${behind.length}`, coding], behind),
    )
    add(
      `a coding ${how}, and a length over all`,
      creation(token, [coding, `Content-Length: ${behind.length}`], behind),
    )
    add(`a coding ${how}, and no length`, creation(token, [coding], chunk(hidden) + lastChunk))
    // Beside a header that says nothing of the framing the short length is the right one.
    if (!meaningless.includes(how)) {
      const short = `Content-Length: ${size.length}`
      add(
        `a coding ${how} over all, and a short length`,
        creation(token, [coding, short], chunk(hidden) + lastChunk),
      )
    }
  }
  for (const [how, length] of Object.entries(lengths)) {
    const line = length(hidden.length)
    add(`a length ${how} over all, of a GET`, verify(token, line) + hidden, meaningless.includes(how))
    if (!meaningless.includes(how)) add(`a length ${how} over all`, creation(token, [line], hidden))
  }
  for (const [how, body] of Object.entries(chunks)) {
    add(`chunks with ${how}`, creation(token, [codings.plain!], body(hidden)))
  }
  return [...all, ...others(token, hidden).map((other) => ({ ...other, plain: false }))]
}

function others(token: string, hidden: string): Omit<Payload, 'plain'>[] {
  const good = verify(token)
  const get = (target: string, ...lines: string[]) =>
    message([`GET ${target} HTTP/1.1`, host, bearer(token), ...lines])
  const length = `Content-Length: ${hidden.length}`
  const old = (bytes: string) => bytes.replace('HTTP/1.1', 'HTTP/1.0')
  const behind = `0\r\n\r\n${hidden}`
  return [
    {
      what: 'HTTP/1.0 with a length over all, and chunks',
      bytes: old(
        creation(
          token,
          ['Connection: keep-alive', `Content-Length: ${behind.length}`, 'Transfer-Encoding: chunked'],
          behind,
        ),
      ),
    },
    {
      what: 'HTTP/1.0 with chunks over all',
      bytes: old(
        creation(token, ['Connection: keep-alive', 'Transfer-Encoding: chunked'], chunk(hidden) + lastChunk),
      ),
    },
    {
      what: 'HTTP/1.0 with hidden ones behind its chunks',
      bytes: old(
        creation(token, ['Connection: keep-alive', 'Transfer-Encoding: chunked'], chunk('{}') + behind),
      ),
    },
    { what: 'HTTP/1.0 that does not go on', bytes: old(good) + hidden },
    { what: 'HTTP/0.9', bytes: `GET /v1/verify\r\n${hidden}` },
    { what: 'lines that end in LF', bytes: creation(token, [length]).replaceAll('\r\n', '\n') + hidden },
    { what: 'a head that ends in LF', bytes: `${creation(token, [length]).slice(0, -2)}\n${hidden}` },
    {
      what: 'a last line that ends in LF',
      bytes: `${creation(token, [length]).slice(0, -4)}\n\r\n${hidden}`,
    },
    {
      what: 'a first header that begins with a space',
      bytes: message(['POST /v1/keys HTTP/1.1', ` ${length}`, host, bearer(token), json], hidden),
    },
    { what: 'two Hosts', bytes: get('/v1/verify', 'Host: elsewhere.test', length) + hidden },
    {
      what: 'absolute-form with another Host, and a body',
      bytes: get('http://elsewhere.test/v1/verify', length) + hidden,
    },
    { what: 'a body of a GET', bytes: get('/v1/verify', length) + hidden },
    {
      what: 'chunks of a GET',
      bytes: get('/v1/verify', 'Transfer-Encoding: chunked') + chunk(hidden) + lastChunk,
    },
    { what: 'a body of a HEAD', bytes: get('/v1/verify', length).replace('GET', 'HEAD') + hidden },
    { what: 'a body of a DELETE', bytes: get('/v1/keys/apk_0', length).replace('GET', 'DELETE') + hidden },
    {
      what: 'chunks of a DELETE',
      bytes:
        get('/v1/keys/apk_0', 'Transfer-Encoding: chunked').replace('GET', 'DELETE') +
        chunk(hidden) +
        lastChunk,
    },
    { what: 'a body that nobody reads, for want of a key', bytes: creation('nope', [length], hidden) },
    {
      what: 'a body that is too large',
      bytes: creation(token, [`Content-Length: ${20_000 + hidden.length}`], ' '.repeat(20_000) + hidden),
    },
    {
      what: 'chunks that are too large',
      bytes: creation(
        token,
        ['Transfer-Encoding: chunked'],
        chunk(' '.repeat(20_000)) + chunk(hidden) + lastChunk,
      ),
    },
    {
      what: 'a body of another media type',
      bytes: creation(token, [length], hidden).replace('application/json', 'text/plain'),
    },
    {
      what: 'an expectation before the body',
      bytes: creation(token, ['Expect: 100-continue', length], hidden),
    },
    {
      what: 'an expectation nobody knows before the body',
      bytes: creation(token, ['Expect: x 100-continue', length], hidden),
    },
    { what: 'an expectation of a GET', bytes: get('/v1/verify', 'Expect: 100-continue', length) + hidden },
    {
      what: 'an offer to upgrade, and a body',
      bytes: creation(token, ['Connection: Upgrade', 'Upgrade: websocket', length], hidden),
    },
    {
      what: 'an offer of HTTP/2, and chunks',
      bytes: creation(
        token,
        [
          'Connection: Upgrade, HTTP2-Settings',
          'HTTP2-Settings: AAMAAABkAAQAAP__',
          'Upgrade: h2c',
          'Transfer-Encoding: chunked',
        ],
        chunk(hidden) + lastChunk,
      ),
    },
    { what: 'CONNECT', bytes: message(['CONNECT latchkey.test:443 HTTP/1.1', host, bearer(token)], hidden) },
    {
      what: 'CONNECT with a length',
      bytes: message(['CONNECT latchkey.test:443 HTTP/1.1', host, bearer(token), length], hidden),
    },
    { what: 'a request that closes', bytes: get('/v1/verify', 'Connection: close') + hidden },
    { what: 'no request', bytes: `nonsense\r\n\r\n${hidden}` },
    { what: 'a request without Host', bytes: good.replace(`${host}\r\n`, '') + hidden },
    {
      what: 'an offer to upgrade, and hidden ones as the body of the next',
      bytes:
        get('/v1/verify', 'Connection: Upgrade', 'Upgrade: websocket') + creation(token, [length], hidden),
    },
    { what: 'headers that are too large', bytes: get('/v1/verify', `X-A: ${'a'.repeat(17_000)}`) + hidden },
  ]
}
