/** What every answer must be, whatever was asked: the envelope, or what is documented for a success. */
import { isUtf8 } from 'node:buffer'
import { type TSchema, TypeRegistry } from '@sinclair/typebox'
import { type TypeCheck, TypeCompiler } from '@sinclair/typebox/compiler'
import { ErrorEnvelope } from '../../schemas/error.ts'
import { CreatedKey, Key, KeyList } from '../../schemas/key.ts'
import { Verified } from '../../schemas/verify.ts'
// Of its formats one is known by this, too.
import { type Code, errors } from '../api/expect-error.ts'
import type { Reading } from './fuzz-reading.ts'
import type { Reply } from './fuzz-reply.ts'
import { bodyFault } from './model-oracle.ts'

// A schema of several types, which TypeBox takes as it is and does not check.
TypeRegistry.Set<TSchema & { type: string[] }>('Unsafe', ({ type }, value) =>
  type.includes(value === null ? 'null' : Number.isInteger(value) ? 'integer' : typeof value),
)
const envelope = TypeCompiler.Compile(ErrorEnvelope)
const successes: [status: number, schema: TypeCheck<TSchema>][] = [
  [201, TypeCompiler.Compile(CreatedKey)],
  ...[Key, KeyList, Verified].map((schema): [number, TypeCheck<TSchema>] => [
    200,
    TypeCompiler.Compile(schema),
  ]),
]

/** Those that the parser gives, before there is a request. */
const parserCodes = ['bad_request', 'headers_too_large', 'request_timeout']

export const isRated = ({ headers }: Reply) => headers.has('x-ratelimit-remaining')
/** The pages, and what browsers and tools ask by themselves: nothing else needs no key. */
const isPage = ({ headers }: Reply) => headers.has('content-security-policy')

function must(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what)
}

/** Throws unless the reply is well formed. Answers what it is, for the tally. */
export function checkReply(reply: Reply, toHead: boolean): string {
  const { status, headers, text } = reply
  const requestId = headers.get('x-request-id') ?? ''
  must(/^req_[0-9a-z]{26}$/.test(requestId), `x-request-id is ${JSON.stringify(requestId)}`)
  must(headers.has('date'), 'no Date')
  must(headers.get('x-content-type-options') === 'nosniff', 'may be sniffed')
  must(headers.get('cache-control') === 'no-store' || (!isRated(reply) && status !== 401), 'may be stored')
  if (isPage(reply) && status === 200) {
    must(headers.get('content-type') === 'text/html; charset=utf-8', 'a page that is no HTML')
    must(toHead || text.startsWith('<!doctype html>'), 'a page that is no page')
    return '200 page'
  }
  if (isPage(reply) && (status === 302 || status === 204)) {
    must(text === '', 'a body where none is meant')
    must(status === 204 || headers.get('location') === '/docs', 'leads elsewhere')
    return `${status} page`
  }
  must(
    headers.get('content-type') === 'application/json; charset=utf-8',
    `of type ${headers.get('content-type')}`,
  )
  if (toHead && text === '') {
    must(status === 200 || Object.values(errors).some(([known]) => known === status), `HEAD is ${status}`)
    return `${status} to HEAD`
  }
  const body = JSON.parse(text)
  if (status < 400) {
    const fitting = successes.filter(([known, schema]) => known === status && schema.Check(body))
    must(fitting.length === 1, `no documented success: ${status} ${text.slice(0, 300)}`)
    return String(status)
  }
  must(envelope.Check(body), `no envelope: ${text.slice(0, 300)}`)
  const { code, type, docs_url, request_id } = (body as ErrorEnvelope).error
  const row = errors[code as Code]
  must(row?.[0] === status && row[1] === type, `${status} ${type} ${code} is not in the table`)
  must(request_id === requestId, `request_id ${request_id} in the body and ${requestId} in the header`)
  must(docs_url === `http://latchkey.test/docs/errors/${code}`, `docs_url is ${docs_url}`)
  must(status !== 500, `a fault of the service: ${text}`)
  must(status !== 503 || headers.get('retry-after') === '1', 'no Retry-After')
  must(status !== 401 || headers.get('www-authenticate') === 'Bearer realm="latchkey"', 'no WWW-Authenticate')
  must(status !== 405 || /^[A-Z]+(, [A-Z]+)*$/.test(headers.get('allow') ?? ''), 'no Allow')
  return `${status} ${code}`
}

/** Throws unless the first reply is one that this request may get. */
export function checkFits(reply: Reply, { good, authenticated, target, body, route }: Reading): void {
  const { status, text } = reply
  if (isPage(reply)) {
    const path = unescaped(target).replace(/^https?:\/\/[^/?#]*/i, '')
    must(/docs|openapi\.json|favicon\.ico|^\/?([?#]|$)/i.test(path), 'a page for another path')
    return
  }
  const code = text.startsWith('{"error"') ? JSON.parse(text).error.code : ''
  must(!isRated(reply) || authenticated !== false, 'admitted without a key')
  must(status !== 401 || authenticated !== true, 'refused with a key')
  must(status !== 401 || !isRated(reply), 'a refusal with rate headers')
  if (good && authenticated === true) must(isRated(reply), `not counted: ${status} ${code}`)
  if (good && authenticated === false) must(status === 401, `not refused: ${status} ${code}`)
  if (!isRated(reply) && status !== 401) {
    must(text === '' || parserCodes.includes(code), `neither counted nor refused: ${status} ${code}`)
  }
  if (good && authenticated === true && route !== null && body !== null) {
    const fitting = answersTo(body, route)
    must(fitting.includes(`${status} ${code}`.trim()), `${status} ${code} instead of ${fitting.join(' or ')}`)
    if (status === 201) checkMade(JSON.parse(text), JSON.parse(utf8(body)))
  }
}

const bodyMax = 16_384
const utf8 = (bytes: string) => Buffer.from(bytes, 'latin1').toString()

/** What a creation or a change with this body may be answered. Which of several faults is told is open. */
function answersTo(body: string, route: 'create' | 'change'): string[] {
  if (body.length > bodyMax) return ['413 payload_too_large']
  let json: unknown
  try {
    if (!isUtf8(Buffer.from(body, 'latin1'))) return ['400 invalid_json']
    json = JSON.parse(utf8(body))
    if (membersWritten(utf8(body)) > membersRead(json)) return ['400 invalid_json']
  } catch {
    return ['400 invalid_json']
  }
  const isObject = typeof json === 'object' && json !== null && !Array.isArray(json)
  const creates = route === 'create'
  const nowS = Math.floor(Date.now() / 1000)
  if (!isObject || bodyFault(json as Record<string, unknown>, creates, nowS) !== null)
    return ['400 invalid_parameter', '400 missing_parameter', '400 unknown_parameter']
  return creates ? ['201', '409 key_limit_reached'] : ['200', '409 key_not_active']
}

/** Of all objects in it. A name that is there twice is read once. */
const membersWritten = (text: string) => text.replace(/"(?:[^"\\]|\\.)*"/g, '').split(':').length - 1
function membersRead(json: unknown): number {
  let members = 0
  for (const left = [json]; left.length > 0; ) {
    const value = left.pop()
    if (typeof value !== 'object' || value === null) continue
    if (!Array.isArray(value)) members += Object.keys(value).length
    left.push(...Object.values(value))
  }
  return members
}

/** Kept as sent, or the default. */
function checkMade(made: Record<string, unknown>, sent: Record<string, unknown>): void {
  const wanted = { rate_limit_rpm: 1000, expires_at: null, ...sent }
  for (const [member, value] of Object.entries(wanted)) {
    must(made[member] === value, `${member} ${JSON.stringify(value)} became ${JSON.stringify(made[member])}`)
  }
}

function unescaped(target: string): string {
  try {
    return decodeURIComponent(target)
  } catch {
    return target
  }
}
