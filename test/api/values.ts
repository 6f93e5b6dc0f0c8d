/** Allowed and refused values of every member, as fast-check arbitraries. */
import fc from 'fast-check'

export const nowS = () => Math.floor(Date.now() / 1000)

const length = (text: string) => [...text].length

/** Visible, so that no name with one of these is blank. */
const visible = fc.constantFrom(...'a Z 0 - \' " \\ < & é ß 中 م א 🔑 👩‍👩‍👧 🏴‍☠️ % ;'.split(' '))
/** Any code point but controls and surrogates. */
const anyPoint = fc
  .oneof(fc.integer({ min: 0x20, max: 0xff }), fc.integer({ min: 0x20, max: 0x10ffff }))
  .map((point) => (point >= 0xd800 && point <= 0xdfff ? 'x' : String.fromCodePoint(point)))
  .filter((point) => !/\p{Cc}|\p{Cs}/u.test(point))
const rest = (max: number) =>
  fc.array(fc.oneof(anyPoint, visible), { maxLength: max }).map((points) => points.join(''))

export const names = fc.oneof(
  fc
    .tuple(rest(20), visible, rest(20))
    .map((parts) => parts.join(''))
    .filter((name) => length(name) <= 255),
  fc.constantFrom(
    ...['x', ' padded ', 'مفتاح الخادم', 'שלום \u202eעולם\u202c', '👩‍👩‍👧‍👦 family', '\u2028line\u2029'],
    ...['\ufeffmarked', 'e\u0301 is not é', 'null', 'undefined', '0', '{}', '%s %n {0}', '\\u0000'],
    ...["'; drop table api_keys; --", '<script>alert(1)</script>', ` ${'\u00a0'.repeat(253)}x`],
    ...['a', 'é', '中', '🔑'].map((letter) => letter.repeat(255)),
  ),
)

const notText = fc.constantFrom<unknown>(null, true, false, 0, 1.5, -1, [], ['x'], {}, { name: 'x' }, [
  [['x']],
])
const control = fc
  .oneof(fc.integer({ min: 0, max: 0x1f }), fc.integer({ min: 0x7f, max: 0x9f }))
  .map((c) => String.fromCharCode(c))
const loneSurrogate = fc.integer({ min: 0xd800, max: 0xdfff }).map((unit) => String.fromCharCode(unit))
const blank = fc
  .array(fc.constantFrom(' ', '\u00a0', '\u2003', '\u3000', '\u2028'), { maxLength: 20 })
  .map((blanks) => blanks.join(''))

export const notNames: fc.Arbitrary<unknown> = fc.oneof(
  notText,
  blank,
  // A space after it: two halves must not become a pair.
  fc
    .tuple(rest(10), fc.oneof(control, loneSurrogate), rest(10))
    .map(([before, bad, after]) => `x ${before} ${bad} ${after}`),
  fc
    .tuple(fc.constantFrom('a', 'é', '🔑'), fc.integer({ min: 256, max: 1000 }))
    .map(([letter, count]) => letter.repeat(count)),
)

export const limits = fc.oneof(
  fc.integer({ min: 1, max: 1_000_000_000 }),
  fc.constantFrom(1, 2, 1000, 999_999_999, 1_000_000_000),
)

const notInteger = fc.constantFrom<unknown>(
  ...['1', '1000', '', ' ', 'abc', 'null', '0x10', true, false, [], [5], {}, { value: 5 }, [[[5]]]],
  ...[0.5, 1.5, 1e-7, 1000.000001],
)

export const notLimits: fc.Arbitrary<unknown> = fc.oneof(
  notInteger,
  fc.constantFrom<unknown>(null, 0, -1, 1_000_000_001, 2 ** 31, 2 ** 53, 2 ** 63, 1e21, 1e308, -(2 ** 53)),
  fc.integer({ max: 0 }),
  fc.integer({ min: 1_000_000_001, max: Number.MAX_SAFE_INTEGER }),
)

/** Ten minutes from now at least, so that a slow machine does not reach them. */
export const moments = fc.oneof(
  fc.constant(null),
  fc.integer({ min: nowS() + 600, max: 4_102_444_799 }),
  fc.constantFrom(4_102_444_799, nowS() + 600),
)

export const notMoments: fc.Arbitrary<unknown> = fc.oneof(
  notInteger,
  fc.constantFrom<unknown>(
    '2030-01-01',
    '2030-01-01T00:00:00Z',
    -1,
    0,
    1,
    4_102_444_800,
    2 ** 53,
    1e21,
    1e308,
  ),
  fc.integer({ max: nowS() }),
  fc.integer({ min: 4_102_444_800, max: Number.MAX_SAFE_INTEGER }),
)

export const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined })
