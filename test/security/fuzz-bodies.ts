/** Request bodies: good ones, good ones that are spoilt, and any others. */
import fc from 'fast-check'
import { anyBytes, latin1, oneOf, weighted, words } from './fuzz-words.ts'

const bodyMax = 16_384
/** As deep as fits: code that recurses may fail there. */
const deep = 8000

/** As they are written: two spellings of one value are two cases. */
const numbers =
  words(`0 -0 1 5 -1 1.5 5.0 1e3 1e400 -1e400 1e-400 1000000000 1000000001 2147483648 9007199254740993
  18446744073709551616 4102444799 4102444800 4102444799999 010 +5 0x10 .5 5. Infinity NaN 1_000
  ${'1'.repeat(400)} 0.${'0'.repeat(400)}1`)
const texts = [
  ...words(String.raw`"" "x" "null" "5" "\u0000" "a\u0000b" "\ud800" "\udc00\ud800" "\ud83d\udd11" "🔑" "\u0085"
    "\u202e" "\x41" "\u12" 'x' " "\ "<script>" "%s%n" "$1" "%24{7}"`),
  ...['" "', '"\u2028"', '"\ufeff"', '"\ufffe"', '"\u0001"', '"\'; drop table api_keys; --"'],
  ...[`"${'a'.repeat(255)}"`, `"${'a'.repeat(256)}"`, `"${'é'.repeat(4000)}"`],
]
const others =
  words(`null true false [] {} [[]] {"name":"x"} ["x"] undefined nul TRUE {"toJSON":1} {"length":1e9}
  {"__proto__":{"name":"x"}} {"constructor":{"prototype":{"polluted":1}}}
  ${'['.repeat(deep)} ${'['.repeat(deep)}${']'.repeat(deep)} ${'{"a":'.repeat(2000)}1${'}'.repeat(2000)}`)
const literal = fc.oneof(oneOf('', ...numbers, ...texts, ...others), fc.json({ maxDepth: 3 }).map(latin1))

const memberName = weighted(
  [6, oneOf('"name"', '"rate_limit_rpm"', '"expires_at"')],
  [
    2,
    oneOf(
      ...words(String.raw`"__proto__" "constructor" "prototype" "toString" "hasOwnProperty" "then" "toJSON" "" "Name"
        "\u006eame" "name\u0000" "\ud800" "a.b" "a/b" "~1" "0" "id" "plain_key" "revoked_at" name 'name' 5`),
      `"${'n'.repeat(300)}"`,
      `"${'🔑'.repeat(60)}"`,
    ),
  ],
  [1, fc.string({ unit: 'binary', maxLength: 8 }).map((name) => latin1(JSON.stringify(name)))],
)
/** A member may come twice. */
const objects = fc
  .array(fc.tuple(memberName, literal), { maxLength: 5 })
  .map((members) => `{${members.map((member) => member.join(':')).join(',')}}`)

export const goodBodies = oneOf(
  '{"name":"x"}',
  '{"name":"x","rate_limit_rpm":5}',
  '{"name":"x","rate_limit_rpm":5,"expires_at":null}',
  '{"name":"x","expires_at":4102444799}',
)
/** Some bytes in the place of others. */
const mutated = fc
  .tuple(goodBodies, fc.array(fc.tuple(fc.nat(60), fc.nat(3), anyBytes(3)), { maxLength: 3 }))
  .map(([body, cuts]) =>
    cuts.reduce((text, [at, less, more]) => text.slice(0, at) + more + text.slice(at + less), body),
  )
const surrounded = goodBodies.chain((text) =>
  oneOf(`\ufeff${text}`, ` \t\r\n${text}\n`, `${text}${text}`, `${text},`),
)
const sized = fc
  .tuple(goodBodies, fc.constantFrom(bodyMax - 1, bodyMax, bodyMax + 1, 2 * bodyMax, 70_000))
  .map(([body, size]) => body.padEnd(size))
const invalidUtf8 = fc
  .constantFrom(
    ...[
      '\xff',
      '\xc0\xaf',
      '\xe2\x82',
      '\xed\xa0\x80',
      '\xf5\x80\x80\x80',
      '\xf0\x9f\x94',
      '\x80',
      '\xfe\xff',
    ],
  )
  .map((bytes) => `{"name":"${bytes}"}`)

export const wildBodies = weighted(
  [6, objects],
  [3, mutated],
  [2, literal],
  [2, fc.json().map(latin1)],
  [2, surrounded],
  [2, sized],
  [2, anyBytes(200)],
  [1, invalidUtf8],
  [1, goodBodies.map((body) => Buffer.from(body, 'utf16le').toString('latin1'))],
  [1, fc.constant('')],
)
