/**
 * Mostly valid requests, any part of which may be wild: their bytes, and how a server must read
 * them.
 */
import fc from 'fast-check'
import { goodBodies, wildBodies } from './fuzz-bodies.ts'
import {
  wildAuthorizations,
  wildHeaders,
  wildMethods,
  wildTargets,
  wildTypes,
  wildVersions,
} from './fuzz-heads.ts'
import { mostly, words } from './fuzz-words.ts'

/** How a body says where it ends. */
type Framing =
  | { by: 'length'; off: number }
  | { by: 'chunks'; sizes: number[]; extension: string; trailers: string; end: string }

export interface FuzzRequest {
  readonly method: string
  readonly target: string
  readonly version: string
  readonly headers: readonly string[]
  /** Null: it says nothing. */
  readonly framing: Framing | null
  readonly body: string
  readonly lineEnd: string
}

/** Replaces what only the client knows. */
export interface Known {
  readonly token: string
  readonly keyId: string
}

/** Those with a body more often: there is more to vary. */
const routes: [method: string, target: string][] = [
  ...Array<[string, string]>(3).fill(['POST', '/v1/keys']),
  ...Array<[string, string]>(2).fill(['PATCH', '/v1/keys/{key}']),
  ['GET', '/v1/verify'],
  ['GET', '/v1/keys'],
  ['GET', '/v1/keys/{key}'],
  ['DELETE', '/v1/keys/{key}'],
  ['POST', '/v1/keys/{key}/rotate'],
  ['GET', '/docs/errors/not_found'],
  ['GET', '/nope'],
]

const { constantFrom, record } = fc
const whole: Framing = { by: 'length', off: 0 }
const chunks: fc.Arbitrary<Framing> = record(
  {
    by: fc.constant('chunks' as const),
    sizes: fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 6 }),
    extension: mostly('', constantFrom(';a=b', ';', ';a="\xff"', ' ', `;${'a'.repeat(20_000)}`), 15),
    trailers: mostly(
      '',
      constantFrom(
        'X: y',
        'Authorization: Bearer x',
        'Content-Length: 5',
        'X',
        `X: ${'y'.repeat(17_000)}`,
      ).map((line) => `${line}\r\n`),
      15,
    ),
    end: mostly('0', constantFrom('', '00', '-1', 'zz', '0x0', 'ffffffffffffffff', '5\r\nabc'), 15),
  },
  { noNullPrototype: true },
)
const wildFramings = fc.oneof(
  constantFrom(1, -1, 100, -3, 1e9, 1e20).map((off): Framing => ({ by: 'length', off })),
  chunks,
  constantFrom(whole, null),
)

export const requests: fc.Arbitrary<FuzzRequest> = constantFrom(...routes).chain(([method, target]) => {
  const hasBody = method === 'POST' || method === 'PATCH'
  return record(
    {
      method: mostly(method, wildMethods, 7),
      target: mostly(target, wildTargets(target), 20),
      version: mostly('HTTP/1.1', wildVersions, 4),
      headers: fc
        .tuple(
          mostly<string[]>(
            ['Host: latchkey.test'],
            constantFrom<string[]>([], ['Host: '], ['host: \xff']),
            2,
          ),
          mostly(['Authorization: Bearer {token}'], wildAuthorizations, 8),
          mostly(hasBody ? ['Content-Type: application/json'] : [], wildTypes, 10),
          mostly([], wildHeaders, 25),
        )
        .map((parts) => parts.flat()),
      framing: mostly<Framing | null>(hasBody ? whole : null, wildFramings, 10),
      body: hasBody ? fc.oneof({ withCrossShrink: true }, goodBodies, wildBodies) : mostly('', wildBodies, 5),
      lineEnd: mostly('\r\n', constantFrom('\n', '\r', '\r\n\r\n'), 1),
    },
    { noNullPrototype: true },
  )
})

function headLines({ method, target, version, headers, framing, body }: FuzzRequest, known: Known): string[] {
  const own =
    framing === null
      ? []
      : [
          framing.by === 'chunks'
            ? 'Transfer-Encoding: chunked'
            : `Content-Length: ${Math.max(0, body.length + framing.off)}`,
        ]
  return [`${method} ${target} ${version}`, ...headers, ...own].map((line) => fill(line, known))
}
const fill = (text: string, { token, keyId }: Known) =>
  text.replaceAll('{token}', token).replaceAll('{key}', keyId)

export function bytesOf(request: FuzzRequest, known: Known): string {
  const { framing, body, lineEnd } = request
  const head = [...headLines(request, known), '', ''].join(lineEnd)
  if (framing?.by !== 'chunks') return head + body
  const { sizes, extension, trailers, end } = framing
  let text = head
  let rest = body
  for (const size of [...sizes, Number.POSITIVE_INFINITY]) {
    const chunk = rest.slice(0, size)
    rest = rest.slice(chunk.length)
    if (chunk !== '') text += `${chunk.length.toString(16)}${extension}\r\n${chunk}\r\n`
  }
  return end === '' ? text : `${text}${end}\r\n${trailers}\r\n`
}

/** How a request must be read by RFC 9112 and the design, as far as they say. */
export interface Reading {
  /** Good HTTP/1.1 beyond doubt: the parser must let it through. */
  readonly good: boolean
  /** Nothing is missing at its end, so a server has nothing to wait for. */
  readonly whole: boolean
  /** Null: open. */
  readonly authenticated: boolean | null
  readonly toHead: boolean
  /** The body, if it arrives as it is. */
  readonly body: string | null
  readonly target: string
  /** Where the body is JSON beyond doubt. */
  readonly route: 'create' | 'change' | null
}

const methods = words('GET POST PATCH PUT DELETE HEAD OPTIONS TRACE PURGE PROPFIND LOCK M-SEARCH')
/** Less than the 16 KiB of the design. */
const headMax = 16_000
const hostChars = /^[\w.~!$&'()*+,;=%:[\]-]*$/
const goodHeader = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [\t\x20-\x7e\x80-\xff]*$/

export function read(request: FuzzRequest, known: Known): Reading {
  const { method, version, framing, body, lineEnd } = request
  const [first, ...headers] = headLines(request, known) as [string, ...string[]]
  const target = fill(request.target, known)
  const values = (name: string) =>
    headers
      .filter((line) => line.toLowerCase().startsWith(`${name}:`))
      .map((line) => line.slice(name.length + 2))
  const isJson =
    values('content-type').join() === 'application/json' && values('content-encoding').length === 0
  const framings = [...values('content-length'), ...values('transfer-encoding')]
  const arrives =
    framing === null
      ? body === ''
      : framing.by === 'length'
        ? framing.off === 0
        : framing.end === '0' && framing.extension === '' && framing.trailers === ''
  const endsWithin =
    framing === null || (framing.by === 'length' ? framing.off <= 0 : ['0', '00'].includes(framing.end))
  // Otherwise one header may be read as two, or as none.
  const lined = lineEnd === '\r\n' && ![first, ...headers].some((line) => /[\r\n]/.test(line))
  const framedOnce = lined && framings.length === (framing === null ? 0 : 1)
  return {
    good:
      framedOnce &&
      arrives &&
      methods.includes(method) &&
      version === 'HTTP/1.1' &&
      /^\/[!-~]*$/.test(target) &&
      values('host').length === 1 &&
      hostChars.test(values('host')[0]!) &&
      headers.every((line) => goodHeader.test(line)) &&
      first.length + headers.join('  ').length < headMax,
    whole: framedOnce && endsWithin,
    authenticated: lined ? authenticated(values('authorization'), known) : null,
    toHead: method === 'HEAD',
    body: framedOnce && arrives ? body : null,
    target,
    route: isJson ? routeOf(method, target, known) : null,
  }
}

function routeOf(method: string, target: string, { keyId }: Known): Reading['route'] {
  if (method === 'POST' && target === '/v1/keys') return 'create'
  return method === 'PATCH' && target === `/v1/keys/${keyId}` ? 'change' : null
}

/**
 * One header with exactly `Bearer`, a space and the token. Blanks before a value are not part of it
 * (RFC 9110, 5.5).
 */
function authenticated(values: string[], { token }: Known): boolean | null {
  if (values.length !== 1) return false
  const value = values[0]!.replace(/^[ \t]+/, '')
  if (value === `Bearer ${token}`) return true
  return value.trimEnd() === `Bearer ${token}` ? null : false
}
