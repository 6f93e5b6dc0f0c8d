/** Bodies as bytes, one character of Latin-1 each: good ones, good ones spoilt, and whatever else. */
import fc from 'fast-check'

const utf8 = (text: string) => Buffer.from(text).toString('latin1')
const bodyMax = 16_384
/** As deep as fits: what recurses may end there. */
const deep = 8000

export const anyByte = fc.integer({ min: 0, max: 255 }).map((byte) => String.fromCharCode(byte))
export const anyBytes = (maxLength: number) => fc.string({ unit: anyByte, maxLength })

/** As they are written: two spellings of one value are two things to try. */
const numbers = [
  ...[
    '0',
    '-0',
    '1',
    '5',
    '-1',
    '1.5',
    '5.0',
    '1e3',
    '1e400',
    '-1e400',
    '1e-400',
    '1000000000',
    '1000000001',
  ],
  ...['2147483648', '9007199254740993', '18446744073709551616', '4102444799', '4102444800', '4102444799999'],
  ...['1'.repeat(400), `0.${'0'.repeat(400)}1`, '010', '+5', '0x10', '.5', '5.', 'Infinity', 'NaN', '1_000'],
]
const texts = [
  ...['""', '" "', '"x"', '"null"', '"5"', '"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"\\udc00\\ud800"'],
  ...[
    '"\\ud83d\\udd11"',
    '"🔑"',
    '"\u2028"',
    '"\\u0085"',
    '"\ufeff"',
    '"\ufffe"',
    '"\\u202e"',
    '"\\x41"',
    '"\\u12"',
  ],
  ...['"\u0001"', "'x'", '"', '"\\', `"${'a'.repeat(255)}"`, `"${'a'.repeat(256)}"`, `"${'é'.repeat(4000)}"`],
  ...['"\'; drop table api_keys; --"', '"<script>"', '"%s%n"', '"$1"', '"%24{7}"'],
]
const others = [
  ...['null', 'true', 'false', '[]', '{}', '[[]]', '{"name":"x"}', '["x"]', 'undefined', 'nul', 'TRUE', ''],
  ...[
    `${'['.repeat(deep)}${']'.repeat(deep)}`,
    `${'{"a":'.repeat(2000)}1${'}'.repeat(2000)}`,
    '['.repeat(deep),
  ],
  ...[
    '{"__proto__":{"name":"x"}}',
    '{"constructor":{"prototype":{"polluted":1}}}',
    '{"toJSON":1}',
    '{"length":1e9}',
  ],
]
const literal = fc.oneof(fc.constantFrom(...numbers, ...texts, ...others), fc.json({ maxDepth: 3 }))

const memberName = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('"name"', '"rate_limit_rpm"', '"expires_at"') },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      ...[
        '"__proto__"',
        '"constructor"',
        '"prototype"',
        '"toString"',
        '"hasOwnProperty"',
        '"then"',
        '"toJSON"',
      ],
      ...[
        '""',
        '"Name"',
        '"\\u006eame"',
        '"name\\u0000"',
        '"\\ud800"',
        '"a.b"',
        '"a/b"',
        '"~1"',
        '"0"',
        '"id"',
      ],
      ...[
        '"plain_key"',
        '"revoked_at"',
        `"${'n'.repeat(300)}"`,
        `"${'🔑'.repeat(60)}"`,
        'name',
        "'name'",
        '5',
      ],
    ),
  },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 8 }).map((name) => JSON.stringify(name)) },
)

/** Members may come twice. */
const objects = fc
  .array(fc.tuple(memberName, literal), { maxLength: 5 })
  .map((members) => `{${members.map(([name, value]) => `${name}:${value}`).join(',')}}`)

export const goodBodies = fc.constantFrom<string>(
  '{"name":"x"}',
  '{"name":"x","rate_limit_rpm":5}',
  '{"name":"x","rate_limit_rpm":5,"expires_at":null}',
  '{"name":"x","expires_at":4102444799}',
)

/** A good one with a few bytes put in place of a few. */
const mutated = fc
  .tuple(
    goodBodies,
    fc.array(fc.tuple(fc.nat({ max: 60 }), fc.nat({ max: 3 }), anyBytes(3)), { maxLength: 3 }),
  )
  .map(([body, cuts]) =>
    cuts.reduce<string>((text, [at, less, more]) => text.slice(0, at) + more + text.slice(at + less), body),
  )

const around = (text: string) =>
  fc.constantFrom(text, `\ufeff${text}`, ` \t\r\n${text}\n`, `${text}${text}`, `${text},`)
const sized = fc
  .tuple(goodBodies, fc.constantFrom(bodyMax - 1, bodyMax, bodyMax + 1, 2 * bodyMax, 70_000))
  .map(([body, size]) => body.padEnd(size))

const invalidUtf8 = [
  ...['\xff', '\xc0\xaf', '\xe2\x82', '\xed\xa0\x80', '\xf5\x80\x80\x80', '\xf0\x9f\x94', '\x80', '\xfe\xff'],
].map((bytes) => `{"name":"${bytes}"}`)

export const wildBodies = fc.oneof(
  { weight: 6, arbitrary: objects.map(utf8) },
  { weight: 3, arbitrary: mutated },
  { weight: 2, arbitrary: literal.map(utf8) },
  { weight: 2, arbitrary: fc.json().map(utf8) },
  { weight: 2, arbitrary: goodBodies.chain(around).map(utf8) },
  { weight: 1, arbitrary: fc.constantFrom(...invalidUtf8) },
  { weight: 2, arbitrary: sized },
  { weight: 1, arbitrary: goodBodies.map((body) => Buffer.from(body, 'utf16le').toString('latin1')) },
  { weight: 2, arbitrary: anyBytes(200) },
  { weight: 1, arbitrary: fc.constant('') },
)
