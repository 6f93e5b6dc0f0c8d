/** A request of which most is good: each part is now and then whatever it can be. And its bytes. */
import fc from 'fast-check'
import { goodBodies, wildBodies } from './fuzz-bodies.ts'
import {
  type Header,
  wildAuthorizations,
  wildHeaders,
  wildMethods,
  wildTypes,
  wildVersions,
} from './fuzz-heads.ts'
import { wildTargets } from './fuzz-targets.ts'

/** How a body says where it ends. */
export type Framing =
  | { by: 'length'; off: number }
  | { by: 'chunks'; sizes: number[]; extension: string; trailers: string; end: string }

export interface FuzzRequest {
  readonly method: string
  readonly target: string
  readonly version: string
  readonly host: readonly Header[]
  readonly authorization: readonly Header[]
  readonly type: readonly Header[]
  readonly headers: readonly Header[]
  /** Null: none, and no word of it. */
  readonly framing: Framing | null
  readonly body: string
  readonly lineEnd: string
}

/** What is sent in place of names that only the lane knows. */
export interface Known {
  readonly token: string
  readonly keyId: string
}

/** Those with a body more often: there is more to try. */
const routes: [method: string, target: string][] = [
  ['POST', '/v1/keys'],
  ['POST', '/v1/keys'],
  ['POST', '/v1/keys'],
  ['PATCH', '/v1/keys/{key}'],
  ['PATCH', '/v1/keys/{key}'],
  ['GET', '/v1/verify'],
  ['GET', '/v1/keys'],
  ['GET', '/v1/keys/{key}'],
  ['DELETE', '/v1/keys/{key}'],
  ['GET', '/docs/errors/not_found'],
  ['GET', '/nope'],
]

/** As usual, or wild in so many cases of a hundred; shrinks to the usual. */
const mostly = <T>(usual: fc.Arbitrary<T>, wild: fc.Arbitrary<T>, percent = 15): fc.Arbitrary<T> =>
  fc.oneof(
    { withCrossShrink: true },
    { weight: 100 - percent, arbitrary: usual },
    { weight: percent, arbitrary: wild },
  )

const whole: Framing = { by: 'length', off: 0 }
const framings: fc.Arbitrary<Framing> = fc.oneof(
  fc.constantFrom(1, -1, 100, -3, 1e9, 1e20).map((off): Framing => ({ by: 'length', off })),
  fc.record(
    {
      by: fc.constant('chunks' as const),
      sizes: fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 6 }),
      extension: mostly<string>(
        fc.constant(''),
        fc.constantFrom(';a=b', ';', ';a="\xff"', ' ', `;${'a'.repeat(20_000)}`),
      ),
      trailers: mostly<string>(
        fc.constant(''),
        fc.constantFrom(
          'X: y\r\n',
          'Authorization: Bearer x\r\n',
          'Content-Length: 5\r\n',
          'X\r\n',
          `X: ${'y'.repeat(17_000)}\r\n`,
        ),
      ),
      end: mostly<string>(
        fc.constant('0'),
        fc.constantFrom('', '00', '-1', 'zz', '0x0', 'ffffffffffffffff', '5\r\nabc'),
      ),
    },
    { noNullPrototype: true },
  ),
)

export const requests: fc.Arbitrary<FuzzRequest> = fc.constantFrom(...routes).chain(([method, target]) => {
  const hasBody = method === 'POST' || method === 'PATCH'
  const none = fc.constant<Header[]>([])
  return fc.record(
    {
      method: mostly<string>(fc.constant(method), wildMethods, 7),
      target: mostly(fc.constant(target), wildTargets(target), 20),
      version: mostly<string>(fc.constant('HTTP/1.1'), wildVersions, 4),
      host: mostly(
        fc.constant<Header[]>([['Host', 'latchkey.test']]),
        fc.constantFrom<Header[]>([], [['Host', '']], [['host', '\xff']]),
        2,
      ),
      authorization: mostly(
        fc.constant<Header[]>([['Authorization', 'Bearer {token}']]),
        wildAuthorizations,
        8,
      ),
      type: mostly(
        hasBody ? fc.constant<Header[]>([['Content-Type', 'application/json']]) : none,
        wildTypes,
        10,
      ),
      headers: mostly(none, wildHeaders, 25),
      framing: mostly<Framing | null>(
        fc.constant(hasBody ? whole : null),
        fc.oneof(framings, fc.constantFrom(whole, null)),
        10,
      ),
      body: hasBody
        ? mostly<string>(goodBodies, wildBodies, 60)
        : mostly<string>(fc.constant(''), wildBodies, 5),
      lineEnd: mostly<string>(fc.constant('\r\n'), fc.constantFrom('\n', '\r', '\r\n\r\n'), 1),
    },
    { noNullPrototype: true },
  )
})

export const headersOf = (
  { host, authorization, type, headers, framing, body }: FuzzRequest,
  known: Known,
): Header[] => {
  const given = [...host, ...authorization, ...type, ...headers]
  const length: Header[] =
    framing?.by === 'length' ? [['Content-Length', String(Math.max(0, body.length + framing.off))]] : []
  const chunked: Header[] = framing?.by === 'chunks' ? [['Transfer-Encoding', 'chunked']] : []
  return [...given, ...length, ...chunked].map(([name, value]) => [name, fill(value, known)])
}

export const targetOf = ({ target }: FuzzRequest, known: Known) => fill(target, known)

export function bytesOf(request: FuzzRequest, known: Known): Buffer {
  const { method, version, framing, body, lineEnd } = request
  const lines = [
    `${method} ${targetOf(request, known)} ${version}`,
    ...headersOf(request, known).map(([name, value]) => `${name}: ${value}`),
    '',
    '',
  ]
  return Buffer.from(
    lines.join(lineEnd) + (framing?.by === 'chunks' ? chunked(body, framing) : body),
    'latin1',
  )
}

function chunked(
  body: string,
  { sizes, extension, trailers, end }: Extract<Framing, { by: 'chunks' }>,
): string {
  let rest = body
  let text = ''
  for (const size of [...sizes, Number.POSITIVE_INFINITY]) {
    const chunk = rest.slice(0, size)
    rest = rest.slice(chunk.length)
    if (chunk !== '') text += `${chunk.length.toString(16)}${extension}\r\n${chunk}\r\n`
  }
  return end === '' ? text : `${text}${end}\r\n${trailers}\r\n`
}

const fill = (text: string, { token, keyId }: Known) =>
  text.replaceAll('{token}', token).replaceAll('{key}', keyId)
