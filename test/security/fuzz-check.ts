/**
 * What every response must be, whatever was sent: the envelope, or what is documented for a
 * success.
 */
import { isUtf8 } from 'node:buffer'
import type { TSchema } from '@sinclair/typebox'
import { TypeCompiler } from '@sinclair/typebox/compiler'
import { ErrorEnvelope } from '../../schemas/error.ts'
import { CreatedKey, Key, KeyList } from '../../schemas/key.ts'
import { Verified } from '../../schemas/verify.ts'
// It also registers a format and a type of these schemas.
import { type Code, errors } from '../api/expect-error.ts'
import type { Reading } from './fuzz-requests.ts'
import { bodyFault } from './model-oracle.ts'
import type { WireAnswer } from './wire.ts'

const envelope = TypeCompiler.Compile(ErrorEnvelope)
const created = TypeCompiler.Compile(CreatedKey)
const others = [Key, KeyList, Verified].map((schema) => TypeCompiler.Compile(schema as TSchema))

/** Those that the parser gives, before there is a request. */
const parserCodes = ['bad_request', 'headers_too_large', 'request_timeout']

export const isRated = ({ headers }: WireAnswer) => headers.has('x-ratelimit-remaining')
/** The pages, and what browsers and tools ask for by themselves. Nothing else needs no key. */
const isPage = ({ headers }: WireAnswer) => headers.has('content-security-policy')

function must(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what)
}

/** Throws unless the response is well formed. Says what it is, for the tally. */
export function checkAnswer(answer: WireAnswer, toHead: boolean): string {
  const { status, headers, text, body } = answer
  const requestId = headers.get('x-request-id') ?? ''
  must(/^req_[0-9a-z]{26}$/.test(requestId), `x-request-id is ${JSON.stringify(requestId)}`)
  must(headers.has('date'), 'no Date')
  must(headers.get('x-content-type-options') === 'nosniff', 'no nosniff')
  must(headers.get('cache-control') === 'no-store' || (!isRated(answer) && status !== 401), 'no no-store')
  const type = headers.get('content-type')
  if (isPage(answer) && status === 200) {
    must(/^(text\/html|application\/json); charset=utf-8$/.test(type ?? ''), `a page of type ${type}`)
    must(toHead || text.startsWith('<!doctype html>') || body?.openapi === '3.1.0', 'a page of what?')
    return '200 page'
  }
  if (isPage(answer) && [204, 302, 304].includes(status)) {
    must(text === '', 'a body where there should be none')
    must(status !== 302 || headers.get('location') === '/docs', 'leads elsewhere')
    return `${status} page`
  }
  must(type === 'application/json; charset=utf-8', `of type ${type}`)
  if (toHead && text === '') {
    must(status === 200 || Object.values(errors).some(([known]) => known === status), `HEAD is ${status}`)
    return `${status} to HEAD`
  }
  if (status < 400) {
    const fits = status === 201 ? created.Check(body) : others.filter((one) => one.Check(body)).length === 1
    must(fits && [200, 201].includes(status), `not a documented success: ${status} ${text.slice(0, 300)}`)
    return String(status)
  }
  must(envelope.Check(body), `not an envelope: ${text.slice(0, 300)}`)
  const { error } = body
  const row = errors[error.code as Code]
  must(
    row?.[0] === status && row[1] === error.type,
    `${status} ${error.type} ${error.code} is not in the table`,
  )
  must(
    error.request_id === requestId,
    `request_id ${error.request_id} in the body and ${requestId} in the header`,
  )
  must(error.docs_url === `http://latchkey.test/docs/errors/${error.code}`, `docs_url is ${error.docs_url}`)
  must(status !== 500, `a fault of the service: ${text}`)
  must(status !== 503 || headers.get('retry-after') === '1', 'no Retry-After')
  must(status !== 401 || headers.get('www-authenticate') === 'Bearer realm="latchkey"', 'no WWW-Authenticate')
  must(status !== 405 || /^[A-Z]+(, [A-Z]+)*$/.test(headers.get('allow') ?? ''), 'no Allow')
  return `${status} ${error.code}`
}

/** Throws unless the first response is one that this request may get. */
export function checkFits(answer: WireAnswer, { good, authenticated, target, body, route }: Reading): void {
  const { status, text } = answer
  const code = answer.body?.error?.code ?? ''
  const given = `${status} ${code}`.trim()
  const rated = isRated(answer)
  if (isPage(answer)) {
    const path = unescaped(target).replace(/^https?:\/\/[^/?#]*/i, '')
    must(/docs|openapi\.json|favicon\.ico|^\/?([?#]|$)/i.test(path), 'a page for another path')
    return
  }
  must(!rated || authenticated !== false, 'admitted without a key')
  must(status !== 401 || authenticated !== true, 'refused with a key')
  must(status !== 401 || !rated, 'a refusal with rate headers')
  if (good && authenticated === true) must(rated, `not counted: ${given}`)
  if (good && authenticated === false) must(status === 401, `not refused: ${given}`)
  if (!rated && status !== 401)
    must(text === '' || parserCodes.includes(code), `neither counted nor refused: ${given}`)
  if (good && authenticated === true && route !== null && body !== null) {
    const fitting = answersTo(body, route)
    must(fitting.includes(given), `${given} instead of ${fitting.join(' or ')}`)
    if (status === 201) checkCreated(answer.body, JSON.parse(utf8(body)))
  }
}

const bodyMax = 16_384
const utf8 = (bytes: string) => Buffer.from(bytes, 'latin1').toString()

/**
 * What a creation or a change with this body may get. Which of several faults is named is left
 * open.
 */
function answersTo(body: string, route: 'create' | 'change'): string[] {
  if (body.length > bodyMax) return ['413 payload_too_large']
  const json = isUtf8(Buffer.from(body, 'latin1')) ? parsed(utf8(body)) : undefined
  if (json === undefined || membersWritten(utf8(body)) > membersRead(json)) return ['400 invalid_json']
  const isObject = typeof json === 'object' && json !== null && !Array.isArray(json)
  const creates = route === 'create'
  const nowS = Math.floor(Date.now() / 1000)
  if (!isObject || bodyFault(json as Record<string, unknown>, creates, nowS) !== null)
    return ['400 invalid_parameter', '400 missing_parameter', '400 unknown_parameter']
  return creates ? ['201', '409 key_limit_reached'] : ['200', '409 key_not_active']
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Of all objects in it. A name that is written twice is read once. */
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

/** As sent, or the default. */
function checkCreated(key: Record<string, unknown>, sent: Record<string, unknown>): void {
  for (const [member, value] of Object.entries({ rate_limit_rpm: 1000, expires_at: null, ...sent })) {
    must(key[member] === value, `${member} ${JSON.stringify(value)} became ${JSON.stringify(key[member])}`)
  }
}

function unescaped(target: string): string {
  try {
    return decodeURIComponent(target)
  } catch {
    return target
  }
}
