/**
 * What each error answer must be, by the design's table. Written out again here: the product's own
 * table is what is tested.
 */
import { FormatRegistry, type TSchema, TypeRegistry } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import type { Test } from 'tap'
import { ErrorEnvelope } from '../../schemas/error.ts'
import type { Answer } from '../instance.ts'

FormatRegistry.Set('uri', (value) => URL.canParse(value))
// Schemas of several types, or of some values, which TypeBox does not check by itself.
TypeRegistry.Set<TSchema & { type: string | string[]; enum?: unknown[] }>('Unsafe', (schema, value) => {
  const type = value === null ? 'null' : Number.isInteger(value) ? 'integer' : typeof value
  return [schema.type].flat().includes(type) && (schema.enum?.includes(value) ?? true)
})

export const errors = {
  invalid_json: [400, 'invalid_request_error'],
  missing_parameter: [400, 'invalid_request_error'],
  unknown_parameter: [400, 'invalid_request_error'],
  invalid_parameter: [400, 'invalid_request_error'],
  bad_request: [400, 'invalid_request_error'],
  unauthorized: [401, 'authentication_error'],
  operator_unauthorized: [401, 'authentication_error'],
  not_found: [404, 'not_found_error'],
  route_not_found: [404, 'not_found_error'],
  method_not_allowed: [405, 'invalid_request_error'],
  request_timeout: [408, 'invalid_request_error'],
  key_not_active: [409, 'conflict_error'],
  key_already_rotated: [409, 'conflict_error'],
  key_limit_reached: [409, 'conflict_error'],
  external_id_taken: [409, 'conflict_error'],
  payload_too_large: [413, 'invalid_request_error'],
  unsupported_media_type: [415, 'invalid_request_error'],
  rate_limit_exceeded: [429, 'rate_limit_error'],
  headers_too_large: [431, 'invalid_request_error'],
  internal_error: [500, 'api_error'],
  service_unavailable: [503, 'api_error'],
} as const
export type Code = keyof typeof errors

/** The design leaves the param of a 409 open. */
const usualParam: Partial<Record<Code, string | null>> = {
  unauthorized: 'authorization',
  operator_unauthorized: 'authorization',
  not_found: 'id',
  key_not_active: null,
  key_already_rotated: 'id',
  key_limit_reached: null,
}

/** Answers whether it was all that; null for `param` takes any. */
export function expectError(
  t: Test,
  answer: Answer,
  code: Code,
  param: string | null = usualParam[code] === undefined ? '' : usualParam[code],
): void {
  const [status, type] = errors[code]
  const { error } = answer.body ?? {}
  t.match(
    { status: answer.status, type: error?.type, code: error?.code },
    { status, type, code },
    `is ${status} ${code}`,
  )
  if (param !== null) t.equal(error?.param, param, `names ${param === '' ? 'no field' : param}`)
  t.same([...Value.Errors(ErrorEnvelope, answer.body)], [], 'is an ErrorEnvelope')
  t.match(answer.headers.get('content-type'), /^application\/json/)
  t.equal(answer.headers.get('x-content-type-options'), 'nosniff')
  t.equal(error?.docs_url, `http://latchkey.test/docs/errors/${code}`)
  t.match(error?.request_id, /^req_[0-9A-Za-z]+$/)
  t.equal(error?.request_id, answer.headers.get('x-request-id'), 'one id in the body and the header')
  t.match(error?.message, /\S/, 'has a message')
  t.match(error?.suggestion, /\S/, 'has a suggestion')
  if (code === 'unauthorized') {
    t.equal(answer.headers.get('www-authenticate'), 'Bearer realm="latchkey"')
    t.notOk(isRated(answer), 'a 401 has no rate headers')
    t.equal(answer.headers.get('cache-control'), 'no-store')
  }
  if (code === 'method_not_allowed') t.match(answer.headers.get('allow'), /[A-Z]/, 'has Allow')
  if (status === 503 || status === 429) {
    t.match(answer.headers.get('retry-after'), /^[1-9][0-9]*$/, 'has Retry-After')
  }
}

export const isRated = ({ headers }: Answer) =>
  [...headers.keys()].some((name) => name.startsWith('x-ratelimit-'))

/** The headers of every answer to an authenticated request. */
export function expectRated(t: Test, { headers }: Answer): void {
  for (const name of ['limit', 'remaining', 'reset']) {
    t.match(headers.get(`x-ratelimit-${name}`), /^[0-9]+$/, `has x-ratelimit-${name}`)
  }
  t.equal(headers.get('cache-control'), 'no-store')
}
