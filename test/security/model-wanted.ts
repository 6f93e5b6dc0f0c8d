/**
 * The expected response: status, headers and body, where some members are known by their form or
 * bounds only.
 */
import { isDeepStrictEqual } from 'node:util'
import { type Code, errors } from '../api/expect-error.ts'
import type { Ask } from './model-ask.ts'
import type { ModelAnswer } from './model-judge.ts'
import type { Expected, Times } from './model-oracle.ts'
import type { ModelKey, World } from './model-world.ts'

/** Unix seconds between which the request was under way. */
export interface Span {
  readonly fromS: number
  readonly toS: number
}

/** Of `last_used_at` on another instance. A second is promised; the machine may be busy. */
const lastUseBehindS = 3

export function wantedAnswer(
  world: World,
  ask: Ask,
  outcome: Expected,
  times: Times,
  span: Span,
  answer: ModelAnswer,
) {
  const { body } = answer
  const envelope = (code: Code, param: string) => ({
    error: {
      type: errors[code][1],
      code,
      param,
      message: like(/\S/),
      suggestion: like(/\S/),
      docs_url: `http://latchkey.test/docs/errors/${code}`,
      request_id: answer.headers.get('x-request-id'),
    },
  })
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'x-request-id': like(/^req_[0-9a-z]{26}$/),
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
    ...(outcome.rated && {
      'x-ratelimit-limit': String(outcome.rated.limit),
      'x-ratelimit-remaining': String(outcome.rated.remaining),
      'x-ratelimit-reset': String(outcome.rated.reset),
    }),
  }
  const shown = (key: ModelKey) => shownKey(key, ask, span)

  if ('error' in outcome) {
    const { error, param, rated } = outcome
    const more = {
      ...(error === 'unauthorized' && { 'www-authenticate': 'Bearer realm="latchkey"' }),
      ...(error === 'rate_limit_exceeded' && { 'retry-after': String(rated!.reset - times.countedS) }),
    }
    return { status: errors[error][0], headers: { ...headers, ...more }, body: envelope(error, param) }
  }
  if ('verified' in outcome) {
    const { id, owner, limit, expiresAt } = outcome.verified
    const user = world.users[owner]
    const more = { 'x-key-id': id, 'x-user-id': user }
    const verified = { key_id: id, user_id: user, rate_limit_rpm: limit, expires_at: expiresAt }
    return { status: 200, headers: { ...headers, ...more }, body: verified }
  }
  if ('created' in outcome) {
    const { name, limit, expiresAt } = outcome.created
    const more = { location: `/v1/keys/${body?.id}` }
    const key = {
      id: like(/^apk_[0-9a-z]{26}$/),
      name,
      key_prefix: String(body?.plain_key).slice(0, 10),
      rate_limit_rpm: limit,
      last_used_at: null,
      expires_at: expiresAt,
      created_at: wholeBetween(span.fromS, span.toS),
      revoked_at: null,
      plain_key: like(/^lk_[0-9A-Za-z]{38}$/),
    }
    return { status: 201, headers: { ...headers, ...more }, body: key }
  }
  if ('page' in outcome) {
    const { page, hasMore } = outcome
    const next_cursor = hasMore ? page.at(-1)!.id : null
    return {
      status: 200,
      headers,
      body: { object: 'list', data: page.map(shown), has_more: hasMore, next_cursor },
    }
  }
  const { key, changes, revokes } = outcome
  const revoked = revokes && { revoked_at: wholeBetween(span.fromS, span.toS) }
  return { status: 200, headers, body: { ...shown({ ...key, ...changes }), ...revoked } }
}

function shownKey(key: ModelKey, { caller, command }: Ask, span: Span) {
  const { id, name, token, limit, expiresAt, createdAt, revokedAt } = key
  return {
    id,
    name,
    key_prefix: token.slice(0, 10),
    rate_limit_rpm: limit,
    last_used_at: id === caller!.id ? wholeBetween(span.fromS, span.toS) : lastUse(key, command.on, span),
    expires_at: expiresAt,
    created_at: createdAt,
    revoked_at: revokedAt,
  }
}

/**
 * Every use on the instance that is asked; on the others those a while ago; never one that was not.
 */
function lastUse({ uses, lastRequestS }: ModelKey, on: number, { fromS }: Span) {
  if (lastRequestS === null) return null
  const due = [...uses].filter(([instance, { toS }]) => instance === on || toS < fromS - lastUseBehindS)
  const bounds = wholeBetween(Math.max(0, ...due.map(([, use]) => use.fromS)), lastRequestS)
  return due.length > 0 ? bounds : orNull(bounds)
}

interface Form {
  readonly form: string
  readonly fits: (value: unknown) => boolean
}

const like = (pattern: RegExp): Form => ({
  form: String(pattern),
  fits: (value) => typeof value === 'string' && pattern.test(value),
})
const wholeBetween = (from: number, to: number): Form => ({
  form: `${from} to ${to}`,
  fits: (value) => Number.isInteger(value) && Number(value) >= from && Number(value) <= to,
})
const orNull = ({ form, fits }: Form): Form => ({
  form: `${form} or null`,
  fits: (value) => value === null || fits(value),
})

const isForm = (value: unknown): value is Form => isObject(value) && typeof value.fits === 'function'
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Where the two differ first, in words; null if nowhere. An unexpected member is a difference. */
export function differenceOf(wanted: unknown, given: unknown, at: string): string | null {
  if (isForm(wanted) ? wanted.fits(given) : isDeepStrictEqual(wanted, given)) return null
  if (Array.isArray(wanted) && Array.isArray(given) && wanted.length === given.length)
    return first(wanted.map((_, i) => differenceOf(wanted[i], given[i], `${at}[${i}]`)))
  if (isObject(wanted) && !isForm(wanted) && isObject(given)) {
    const names = new Set([...Object.keys(wanted), ...Object.keys(given)])
    return first([...names].map((name) => differenceOf(wanted[name], given[name], `${at}.${name}`)))
  }
  return `${at} is ${show(given)} instead of ${show(wanted)}`
}

const first = (differences: (string | null)[]) => differences.find((one) => one !== null) ?? null
const show = (value: unknown) => JSON.stringify(value, (_, one) => (isForm(one) ? one.form : one)) ?? 'absent'
