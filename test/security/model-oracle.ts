/**
 * The response that the specification requires: a function of the world, the request and the
 * moments at which it was counted, checked and decided. Nothing in here knows how the service does
 * it.
 */
import type { Code } from '../api/expect-error.ts'
import type { Ask } from './model-ask.ts'
import { type ModelKey, ownedBy, resetAfter, statusOf, type World } from './model-world.ts'

export const maxKeysPerUser = 6
export const defaultLimit = 77
const limitMax = 1_000_000_000
const expiresEnd = Date.UTC(2100, 0) / 1000

/** Unix seconds of the servers' clocks; only their bounds are known. */
export interface Times {
  readonly countedS: number
  /** When the body was checked. */
  readonly checkedS: number
  readonly decidedS: number
}

export interface Rated {
  readonly limit: number
  readonly remaining: number
  readonly reset: number
}

export type Expected = { rated: Rated | null } & (
  | { error: Code; param: string }
  | { verified: ModelKey }
  /** Asked for, not yet there. */
  | { created: { name: string; limit: number; expiresAt: number | null } }
  /** As it is, with the changes. */
  | { key: ModelKey; changes: Partial<Pick<ModelKey, 'name' | 'limit' | 'expiresAt'>>; revokes: boolean }
  | { page: ModelKey[]; hasMore: boolean }
)

export function expected(world: World, ask: Ask, { countedS, checkedS, decidedS }: Times): Expected {
  const { caller, command, json, target } = ask
  const unauthorized = { rated: null, error: 'unauthorized', param: 'authorization' } as const
  if (caller === null || statusOf(caller, countedS) !== 'active') return unauthorized

  const reset = resetAfter(countedS)
  const number = (caller.counts.get(reset) ?? 0) + 1
  const rated = { limit: caller.limit, remaining: Math.max(0, caller.limit - number), reset }
  if (number > caller.limit) return { rated, error: 'rate_limit_exceeded', param: '' }

  const fault = json === undefined ? queryFault(ask) : bodyFault(json, command.does === 'create', checkedS)
  if (fault !== null) return { rated, ...fault }
  const changes = ['create', 'patch', 'delete'].includes(command.does)
  if (changes && statusOf(caller, decidedS) !== 'active') return unauthorized

  const notFound = { rated, error: 'not_found', param: 'id' } as const
  switch (command.does) {
    case 'use':
      return { rated, verified: caller }
    case 'create': {
      const usable = ownedBy(world, caller.owner).filter((key) => statusOf(key, decidedS) === 'active')
      if (usable.length >= maxKeysPerUser) return { rated, error: 'key_limit_reached', param: '' }
      return { rated, created: { limit: defaultLimit, expiresAt: null, name: '', ...changesIn(json!) } }
    }
    case 'get':
      return target === null ? notFound : { rated, key: target, changes: {}, revokes: false }
    case 'delete':
      return target === null
        ? notFound
        : { rated, key: target, changes: {}, revokes: target.revokedAt === null }
    case 'patch':
      if (target === null) return notFound
      if (statusOf(target, decidedS) !== 'active') return { rated, error: 'key_not_active', param: 'id' }
      return { rated, key: target, changes: changesIn(json!), revokes: false }
    case 'list': {
      if (ask.after === null) return { rated, error: 'not_found', param: 'starting_after' }
      const { status, limit = '100' } = command.query
      const newestFirst = ownedBy(world, caller.owner).reverse()
      const rest = newestFirst
        .slice(ask.after === undefined ? 0 : newestFirst.indexOf(ask.after) + 1)
        .filter((key) => status === undefined || statusOf(key, decidedS) === status)
      return { rated, page: rest.slice(0, Number(limit)), hasMore: rest.length > Number(limit) }
    }
  }
}

function changesIn(json: Record<string, unknown>): Partial<Pick<ModelKey, 'name' | 'limit' | 'expiresAt'>> {
  return {
    ...(json.name !== undefined && { name: json.name as string }),
    ...(json.rate_limit_rpm !== undefined && { limit: json.rate_limit_rpm as number }),
    ...(json.expires_at !== undefined && { expiresAt: json.expires_at as number | null }),
  }
}

type Fault = { error: Code; param: string } | null
const invalid = (param: string) => ({ error: 'invalid_parameter', param }) as const

/** What is wrong with a body that is an object; null: nothing. */
export function bodyFault(json: Record<string, unknown>, creates: boolean, nowS: number): Fault {
  const known = ['name', 'rate_limit_rpm', 'expires_at']
  const unknown = Object.keys(json).find((member) => !known.includes(member))
  if (unknown !== undefined) return { error: 'unknown_parameter', param: unknown }
  if (creates && json.name === undefined) return { error: 'missing_parameter', param: 'name' }
  if (Object.keys(json).length === 0) return { error: 'missing_parameter', param: '' }
  const { name, rate_limit_rpm: limit, expires_at: expiresAt } = json
  if (name !== undefined && !isName(name)) return invalid('name')
  if (limit !== undefined && !isWhole(limit, 1, limitMax)) return invalid('rate_limit_rpm')
  if (expiresAt != null && !isWhole(expiresAt, nowS + 1, expiresEnd - 1)) return invalid('expires_at')
  return null
}

const isWhole = (value: unknown, min: number, max: number) =>
  Number.isInteger(value) && (value as number) >= min && (value as number) <= max

/** 1 to 255 characters, not blank, no control characters or lone surrogates. */
function isName(value: unknown): boolean {
  if (typeof value !== 'string' || value.trim() === '' || /\p{Cc}|\p{Cs}/u.test(value)) return false
  return [...value].length <= 255
}

function queryFault({ command }: Ask): Fault {
  if (command.does !== 'list') return null
  const { limit, status, unknown } = command.query
  if (unknown !== undefined) return { error: 'unknown_parameter', param: unknown }
  if (limit !== undefined && !(/^[0-9]+$/.test(limit) && isWhole(Number(limit), 1, 100)))
    return invalid('limit')
  if (status !== undefined && !['active', 'revoked', 'expired'].includes(status)) return invalid('status')
  return null
}
