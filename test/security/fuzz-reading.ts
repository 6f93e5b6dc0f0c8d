/** How a request must be read, as far as that can be said of it: by RFC 9112 and the design, not by what the service does. */
import { type FuzzRequest, headersOf, type Known, targetOf } from './fuzz-requests.ts'

export interface Reading {
  /** Good HTTP/1.1 beyond doubt: the parser must let it through. */
  readonly good: boolean
  /** Nothing is missing at its end: who gets it has nothing to wait for. */
  readonly whole: boolean
  /** Null: the specifications leave it open. */
  readonly authenticated: boolean | null
  readonly toHead: boolean
  /** The body if it arrives as it is. */
  readonly body: string | null
  readonly target: string
  /** Where the body is JSON beyond doubt. */
  readonly route: 'create' | 'change' | null
}

const methods = [
  'GET',
  'POST',
  'PATCH',
  'PUT',
  'DELETE',
  'HEAD',
  'OPTIONS',
  'TRACE',
  'PURGE',
  'PROPFIND',
  'LOCK',
  'M-SEARCH',
]
/** Less than 16 KiB, the bound of the design. */
const headMax = 16_000
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/

export function read(request: FuzzRequest, known: Known): Reading {
  const { method, version, framing, body, lineEnd } = request
  const target = targetOf(request, known)
  const headers = headersOf(request, known)
  const named = (wanted: string) =>
    headers.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value)
  const own = { length: framing?.by === 'length' ? 1 : 0, chunks: framing?.by === 'chunks' ? 1 : 0 }
  const framedOnce =
    named('content-length').length === own.length && named('transfer-encoding').length === own.chunks
  const arrives =
    framing === null
      ? body === ''
      : framing.by === 'length'
        ? framing.off === 0
        : framing.end === '0' && framing.extension === '' && framing.trailers === ''
  const endsWithin =
    framing === null || (framing.by === 'length' ? framing.off <= 0 : ['0', '00'].includes(framing.end))
  const head = [method, target, version, ...headers.flat()]
  /** Else a header may be read as two, or as none. */
  const lined = lineEnd === '\r\n' && !head.some((part) => /[\r\n]/.test(part))
  const plain = lined && framedOnce
  const good =
    plain &&
    arrives &&
    methods.includes(method) &&
    version === 'HTTP/1.1' &&
    /^\/[!-~]*$/.test(target) &&
    named('host').length === 1 &&
    headers.every(([name, value]) => token.test(name) && fieldValue.test(value)) &&
    head.join('').length + headers.length * 4 < headMax
  return {
    good,
    whole: plain && endsWithin,
    authenticated: lined ? authenticated(named('authorization'), known) : null,
    toHead: method === 'HEAD',
    body: plain && arrives ? body : null,
    target,
    route: isJson(named) ? routeOf(method, target, known) : null,
  }
}

const isJson = (named: (name: string) => string[]) =>
  named('content-type').length === 1 &&
  named('content-type')[0] === 'application/json' &&
  named('content-encoding').length === 0

function routeOf(method: string, target: string, { keyId }: Known): Reading['route'] {
  if (method === 'POST' && target === '/v1/keys') return 'create'
  return method === 'PATCH' && target === `/v1/keys/${keyId}` ? 'change' : null
}

/** One header, and in it exactly `Bearer`, a space and the token; blanks before a value are none of it (RFC 9110, 5.5). */
function authenticated(values: string[], { token }: Known): boolean | null {
  if (values.length !== 1) return false
  const value = values[0]!.replace(/^[ \t]+/, '')
  if (value === `Bearer ${token}`) return true
  return value.trimEnd() === `Bearer ${token}` ? null : false
}
