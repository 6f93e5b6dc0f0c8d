/**
 * What a client may ask for, as plain data that shrinks: keys are numbers, and moments are seconds
 * from now.
 */
import fc from 'fast-check'
import { limits, names, notLimits, notMoments, notNames } from '../api/values.ts'
import { weighted } from './fuzz-words.ts'

/** Whose token is sent. */
export type By = { root: number } | { key: number } | 'unknown' | 'none'
/**
 * Which id is in the path or the cursor. Numbers count the caller's own keys without the root, or
 * all keys of the other user.
 */
export type Target =
  | { own: number }
  | 'root'
  | { stranger: number }
  | { mistyped: number }
  | { absent: string }

export interface Body {
  name?: unknown
  rate_limit_rpm?: unknown
  /** Sent as that many seconds from now. */
  expires_in?: number | null
  /** Sent as `expires_at`, as it is. */
  expires_at?: unknown
  unknown?: string
}
export interface Query {
  limit?: string
  status?: string
  after?: Target
  unknown?: string
}

export type Command = { by: By; on: number } & (
  | { does: 'use' }
  | { does: 'create'; body: Body }
  | { does: 'patch'; target: Target; body: Body }
  | { does: 'delete' | 'get'; target: Target }
  | { does: 'list'; query: Query }
)
/** Waits until a key that is about to expire has. */
export type Pause = { does: 'wait'; key: number }

/** Objects without a prototype would clutter the report. */
const noNullPrototype = true
const record = <T>(members: { [K in keyof T]: fc.Arbitrary<T[K]> }) =>
  fc.record<T>(members, { noNullPrototype })
const partial = <T, K extends keyof T>(members: { [K in keyof T]: fc.Arbitrary<T[K]> }, requiredKeys: K[]) =>
  fc.record<T, K>(members, { noNullPrototype, requiredKeys })
const number = fc.nat({ max: 15 })
const by: fc.Arbitrary<By> = weighted<By>(
  [12, record({ root: fc.nat({ max: 1 }) })],
  [8, record({ key: number })],
  [1, fc.constantFrom<By>('unknown', 'none')],
)
const target = weighted<Target>(
  [16, record({ own: number })],
  // Rarely: a user without a root soon gets nothing but refusals.
  [1, fc.constant('root')],
  [4, record({ stranger: number })],
  [2, record({ mistyped: number })],
  [2, record({ absent: fc.constantFrom('apk_0000000000000000000000', 'x', 'apk_', '%zz', '%00') })],
)

/** Small ones are reached soon. */
const someLimits = weighted([4, fc.integer({ min: 1, max: 5 })], [1, limits])
/** Reached soon, in the past, or far off. */
const expiries = weighted<number | null>(
  [4, fc.integer({ min: 1, max: 3 })],
  [1, fc.integer({ min: -3, max: 0 })],
  [2, fc.constantFrom(null, 3600)],
)
/** At most one thing is wrong: nothing promises which of two would be named. */
const spoilt = fc.oneof(
  notNames.map((name): Body => ({ name })),
  notLimits.map((rate_limit_rpm): Body => ({ rate_limit_rpm })),
  notMoments.map((expires_at): Body => ({ expires_at })),
  fc.constantFrom('colour', 'revoked_at', 'id', 'plain_key').map((unknown): Body => ({ unknown })),
)
const body = (required: 'name'[]): fc.Arbitrary<Body> => {
  const whole: fc.Arbitrary<Body> = partial(
    { name: names, rate_limit_rpm: someLimits, expires_in: expiries },
    required,
  )
  // No good expiry beside it: that might be in the past when it arrives.
  const broken = fc.tuple(record({ name: names, rate_limit_rpm: limits }), spoilt)
  return weighted([12, whole], [1, fc.constant({})], [2, broken.map(([good, bad]) => ({ ...good, ...bad }))])
}

const goodQuery = partial<Omit<Query, 'unknown'>, never>(
  {
    limit: fc.oneof(fc.integer({ min: 1, max: 6 }), fc.constantFrom(100, 99)).map(String),
    status: fc.constantFrom('active', 'revoked', 'expired'),
    after: target,
  },
  [],
)
const badQuery = fc.oneof(
  fc.constantFrom('0', '101', '-1', '1.5', 'ten', '').map((limit): Query => ({ limit })),
  fc.constantFrom('', 'ACTIVE', 'all').map((status): Query => ({ status })),
  fc.constantFrom('page', 'offset').map((unknown): Query => ({ unknown })),
)

const on = fc.nat({ max: 1 })
const does = <T extends string>(what: T) => fc.constant(what)
const command = weighted<Command | Pause>(
  [24, record({ does: does('use'), by, on })],
  [14, record({ does: does('create'), by, on, body: body(['name']) })],
  [12, record({ does: does('patch'), by, on, target, body: body([]) })],
  [5, record({ does: does('delete'), by, on, target })],
  [10, record({ does: does('get'), by, on, target })],
  [10, record({ does: does('list'), by, on, query: weighted<Query>([9, goodQuery], [1, badQuery]) })],
  [1, record({ does: does('wait'), key: number })],
)

/**
 * Reversed, because shrinking drops the first ones first: those should be the ones behind the
 * failure.
 */
export const commands = fc.array(command, { maxLength: 150, size: 'max' }).map((all) => all.toReversed())
