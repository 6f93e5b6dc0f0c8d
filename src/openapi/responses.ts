/**
 * The responses of an operation: their headers, and the errors. Which errors an operation can send
 * follows from its listener and from what it reads. Only what its handler decides is listed with
 * the route.
 */
import { type ErrorCode, type ErrorRow, errorTable } from '../../schemas/error-table.ts'
import { type HeaderName, responseHeaders } from '../../schemas/header.ts'
import type { Header, MediaType, Response } from './document-types.ts'

/** Errors of any request, whatever its route. */
const errorsOfAnyRequest: readonly ErrorCode[] = [
  'bad_request',
  'request_timeout',
  'headers_too_large',
  'internal_error',
]
const errorsOfBodies: readonly ErrorCode[] = [
  'invalid_json',
  'unknown_parameter',
  'invalid_parameter',
  'payload_too_large',
  'unsupported_media_type',
]

/** These may end a request before it is counted, or even read. Headers set later may be missing. */
const early = new Set<ErrorCode>([...errorsOfAnyRequest, 'service_unavailable'])

const headersOfErrors: { [code in ErrorCode]?: HeaderName } = {
  unauthorized: 'www-authenticate',
  operator_unauthorized: 'www-authenticate',
  rate_limit_exceeded: 'retry-after',
  service_unavailable: 'retry-after',
}

/** What `param` usually names. Of a missing or invalid parameter, it is a member of the request. */
const usualParams: { [code in ErrorCode]?: string } = {
  unknown_parameter: 'colour',
  unauthorized: 'authorization',
  operator_unauthorized: 'authorization',
  not_found: 'id',
  key_not_active: 'id',
  key_already_rotated: 'id',
  external_id_taken: 'external_id',
}

export const alwaysSent: readonly HeaderName[] = ['x-request-id', 'x-content-type-options']
export const rateHeaders: readonly HeaderName[] = [
  'x-ratelimit-limit',
  'x-ratelimit-remaining',
  'x-ratelimit-reset',
]

interface Wanting {
  required?: string[]
  properties?: object
  minProperties?: number
  items?: Wanting
}
const wantsMembers = (body: Wanting | undefined): boolean =>
  body !== undefined && Boolean(body.required ?? body.minProperties ?? wantsMembers(body.items))

/** A member that a request may lack, or have with a wrong value; "" if there is none. */
export function memberOf({ body, querystring }: { body?: unknown; querystring?: unknown }): string {
  const { required = [], properties = {} } = (body ?? querystring ?? {}) as Wanting
  return required[0] ?? Object.keys(properties)[0] ?? ''
}

/** In the order of the table. `listed`: the codes of the listener and of the route itself. */
export function errorCodesOf(
  reads: { body?: unknown; querystring?: unknown; params?: unknown },
  listed: readonly ErrorCode[],
): ErrorCode[] {
  const codes = new Set<ErrorCode>([...errorsOfAnyRequest, ...listed])
  if (reads.body !== undefined) for (const code of errorsOfBodies) codes.add(code)
  if (wantsMembers(reads.body as Wanting | undefined)) codes.add('missing_parameter')
  if (reads.querystring !== undefined) codes.add('unknown_parameter')
  const { properties = {} } = (reads.querystring ?? {}) as { properties?: object }
  if (Object.keys(properties).length > 0) codes.add('invalid_parameter')
  if (reads.params !== undefined) codes.add('not_found')
  return (Object.keys(errorTable) as ErrorCode[]).filter((code) => codes.has(code))
}

/** The codes by status, for one response each. */
export function byStatus(codes: readonly ErrorCode[]): Map<number, ErrorCode[]> {
  const statuses = new Map<number, ErrorCode[]>()
  for (const code of codes) {
    const { status } = errorTable[code]
    statuses.set(status, [...(statuses.get(status) ?? []), code])
  }
  return statuses
}

/**
 * One example for each code. `member`: of the request, as `param`. `usual`: what the listener sets on
 * each response, once the request has come far enough.
 */
export function errorResponse(
  codes: readonly ErrorCode[],
  usual: readonly HeaderName[],
  { member, docsBase }: { member: string; docsBase: string },
): Response {
  const rows: ErrorRow[] = codes.map((code) => errorTable[code])
  const later = codes.includes('unauthorized') ? usual.filter((name) => !rateHeaders.includes(name)) : usual
  const own = codes.flatMap((code) => headersOfErrors[code] ?? [])
  const isEarly = codes.some((code) => early.has(code))
  const examples = codes.map((code) => [
    code,
    { summary: errorTable[code].message, value: errorExample(code, member, docsBase) },
  ])
  const content: MediaType = {
    schema: { $ref: '#/components/schemas/ErrorEnvelope' },
    examples: Object.fromEntries(examples),
  }
  return {
    description: rows.map(({ message }, i) => `\`${codes[i]}\`: ${message}`).join(' '),
    headers: {
      ...headersOf([...alwaysSent, ...own], true),
      ...headersOf(
        later.filter((name) => !own.includes(name)),
        !isEarly,
      ),
    },
    content: { 'application/json': content },
  }
}

export const headersOf = (names: readonly HeaderName[], required: boolean): Record<string, Header> =>
  Object.fromEntries(
    names.map((name) => {
      const { description = '', ...schema } = responseHeaders[name]
      return [name, { description, required, schema: { ...schema } }]
    }),
  )

function errorExample(code: ErrorCode, member: string, docsBase: string) {
  const { type, message, suggestion }: ErrorRow = errorTable[code]
  const isAboutMember = code === 'missing_parameter' || code === 'invalid_parameter'
  const param = isAboutMember ? member : (usualParams[code] ?? '')
  const [request_id] = responseHeaders['x-request-id'].examples as [string]
  return { error: { type, code, message, param, docs_url: docsBase + code, request_id, suggestion } }
}
