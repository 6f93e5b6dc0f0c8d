/** What a client may ask for, as plain data: keys are meant by number and moments by seconds from now, so that it shrinks. */
import fc from 'fast-check'
import { limits, names, notLimits, notMoments, notNames } from '../api/values.ts'

/** Whose token is sent. */
export type By = { root: number } | { key: number } | 'unknown' | 'none'
/** Which id is in the path or the cursor: numbers count the caller's own keys but for the root, or all of the other user. */
export type Target =
  | { own: number }
  | 'root'
  | { strange: number }
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

type Members<T> = { [K in keyof T]: fc.Arbitrary<T[K]> }
/** A prototype of null would clutter what is shown. */
const noNullPrototype = true
const record = <T>(members: Members<T>) => fc.record<T>(members, { noNullPrototype })
const partial = <T, K extends keyof T>(members: Members<T>, requiredKeys: K[]) =>
  fc.record<T, K>(members, { noNullPrototype, requiredKeys })
const number = fc.nat({ max: 15 })
const by: fc.Arbitrary<By> = fc.oneof(
  { weight: 12, arbitrary: record({ root: fc.nat({ max: 1 }) }) },
  { weight: 8, arbitrary: record({ key: number }) },
  { weight: 1, arbitrary: fc.constantFrom<By>('unknown', 'none') },
)
const target: fc.Arbitrary<Target> = fc.oneof(
  { weight: 16, arbitrary: record({ own: number }) },
  // Rarely: a user without a root soon has nothing but refusals.
  { weight: 1, arbitrary: fc.constant('root' as const) },
  { weight: 4, arbitrary: record({ strange: number }) },
  { weight: 2, arbitrary: record({ mistyped: number }) },
  {
    weight: 2,
    arbitrary: record({
      absent: fc.constantFrom('apk_0000000000000000000000', 'x', 'apk_', '%zz', '%00'),
    }),
  },
)

/** Small ones are soon reached. */
const someLimits = fc.oneof({ weight: 4, arbitrary: fc.integer({ min: 1, max: 5 }) }, limits)
/** Soon reached, in the past, or far away. */
const expiries = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 3 }) },
  { weight: 1, arbitrary: fc.integer({ min: -3, max: 0 }) },
  { weight: 2, arbitrary: fc.constantFrom(null, 3600) },
)
/** At most one thing is wrong: which of two would be told first is nobody's promise. */
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
  // A spoilt one keeps the others, bar an expiry that might be in the past by the time it arrives.
  const broken = fc.tuple(record({ name: names, rate_limit_rpm: limits }), spoilt)
  return fc.oneof(
    { weight: 12, arbitrary: whole },
    { weight: 1, arbitrary: fc.constant({}) },
    { weight: 2, arbitrary: broken.map(([good, bad]): Body => ({ ...good, ...bad })) },
  )
}

const query: fc.Arbitrary<Query> = fc.oneof(
  {
    weight: 9,
    arbitrary: partial(
      {
        limit: fc.oneof(fc.integer({ min: 1, max: 6 }), fc.constantFrom(100, 99)).map(String),
        status: fc.constantFrom('active', 'revoked', 'expired'),
        after: target,
      },
      [],
    ),
  },
  {
    weight: 1,
    arbitrary: fc.oneof(
      fc.constantFrom('0', '101', '-1', '1.5', 'ten', '').map((limit): Query => ({ limit })),
      fc.constantFrom('', 'ACTIVE', 'all').map((status): Query => ({ status })),
      fc.constantFrom('page', 'offset').map((unknown): Query => ({ unknown })),
    ),
  },
)

const on = fc.nat({ max: 1 })
const does = fc.constant
const weighted: [weight: number, arbitrary: fc.Arbitrary<Command | Pause>][] = [
  [24, record({ does: does('use' as const), by, on })],
  [14, record({ does: does('create' as const), by, on, body: body(['name']) })],
  [12, record({ does: does('patch' as const), by, on, target, body: body([]) })],
  [5, record({ does: does('delete' as const), by, on, target })],
  [10, record({ does: does('get' as const), by, on, target })],
  [10, record({ does: does('list' as const), by, on, query })],
  [1, record({ does: does('wait' as const), key: number })],
]

/** Played last to first of what shrinks: that drops the first ones first, which so are those behind the failure. */
export const commands = fc
  .array(fc.oneof(...weighted.map(([weight, arbitrary]) => ({ weight, arbitrary }))), {
    maxLength: 150,
    size: 'max',
  })
  .map((all) => all.toReversed())
