/** What was expected, as an answer: status, headers and body, each member exact or by its form. */
import { type Code, errors } from '../api/expect-error.ts'
import type { Ask } from './model-ask.ts'
import type { ModelAnswer } from './model-client.ts'
import { like, orNull, wholeBetween } from './model-match.ts'
import type { Expected, Times } from './model-oracle.ts'
import type { ModelKey, World } from './model-world.ts'

/** Unix seconds between which the request was under way. */
export interface Span {
  readonly fromS: number
  readonly toS: number
}

/** `last_used_at` on another instance: promised a second behind; the machine may be busy. */
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
      request_id: answer.headers['x-request-id'],
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

/** Every use on the instance that is asked; of the others those a while ago; none that never was. */
function lastUse({ uses, lastRequestS }: ModelKey, on: number, { fromS }: Span) {
  if (lastRequestS === null) return null
  const due = [...uses].filter(([instance, { toS }]) => instance === on || toS < fromS - lastUseBehindS)
  const bounds = wholeBetween(Math.max(0, ...due.map(([, use]) => use.fromS)), lastRequestS)
  return due.length > 0 ? bounds : orNull(bounds)
}
