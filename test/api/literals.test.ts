// JSON as it is written, where two spellings of a value, or a member given twice, could be taken for something else.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { countKeys, openDatabase } from './database.ts'
import { type Code, expectError } from './expect-error.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl)

const post = (token: string, body: string) =>
  instance.ask('POST', '/v1/keys', { token, headers: { 'content-type': 'application/json' }, body })

// JSON has numbers, not kinds of numbers: 5.0 is the integer 5 (as JSON Schema has it).
for (const [literal, value] of [
  ['1000', 1000],
  ['5.0', 5],
  ['1e3', 1000],
  ['1E+3', 1000],
  ['1.5e1', 15],
  ['100e-1', 10],
] as const) {
  t.test(`a limit written ${literal} is ${value}`, async (t) => {
    const { token } = await makeCaller(instance)
    const { status, body } = await post(token, `{"name":"x","rate_limit_rpm":${literal}}`)
    t.equal(status, 201)
    t.equal(body.rate_limit_rpm, value)
  })
}

const deep = 7000
const refused: [body: string, code: Code, param: string][] = [
  ...[
    '-0',
    '0',
    '0.0',
    '-5',
    '1.0000001',
    '1e9999',
    '-1e9999',
    '1e-9999',
    '9007199254740993',
    '1000000001',
    '1e10',
  ].map((literal): [string, Code, string] => [
    `{"name":"x","rate_limit_rpm":${literal}}`,
    'invalid_parameter',
    'rate_limit_rpm',
  ]),
  ...[
    '123456789012345678901234567890',
    '18446744073709551616',
    '-9223372036854775809',
    '"1e3"',
    '[1000]',
    'true',
  ].map((literal): [string, Code, string] => [
    `{"name":"x","rate_limit_rpm":${literal}}`,
    'invalid_parameter',
    'rate_limit_rpm',
  ]),
  ...['1e400', '4102444800.0', '1.5', '-0', '253402300800', '"never"'].map(
    (literal): [string, Code, string] => [
      `{"name":"x","expires_at":${literal}}`,
      'invalid_parameter',
      'expires_at',
    ],
  ),
  ...['0x10', '010', '+5', '.5', '5.', 'Infinity', '1_000', '1e', '--1'].map(
    (literal): [string, Code, string] => [`{"name":"x","rate_limit_rpm":${literal}}`, 'invalid_json', ''],
  ),
  ['{"name":"x","__proto__":{"rate_limit_rpm":5}}', 'unknown_parameter', '__proto__'],
  ['{"name":"x","__proto__":null}', 'unknown_parameter', '__proto__'],
  ['{"name":"x","constructor":{"prototype":{"polluted":true}}}', 'unknown_parameter', 'constructor'],
  ['{"name":{"name":"x"}}', 'invalid_parameter', 'name'],
  [`{"name":${'['.repeat(deep)}${']'.repeat(deep)}}`, 'invalid_parameter', 'name'],
  [`{"name":"x","nested":${'{"a":'.repeat(2000)}1${'}'.repeat(2000)}}`, 'unknown_parameter', 'nested'],
  ['{"name":"\\ud83d"}', 'invalid_parameter', 'name'],
  ['{"name":"\\udd11\\ud83d"}', 'invalid_parameter', 'name'],
  ['{"name":"a\\u0000b"}', 'invalid_parameter', 'name'],
  ['{"name":"\\u0085x"}', 'invalid_parameter', 'name'],
]
for (const [body, code, param] of refused) {
  const shown = body.length > 70 ? `${body.slice(0, 40)}… of ${body.length} characters` : body
  t.test(`the creation ${shown} is ${code} and creates nothing`, async (t) => {
    const { token, userId } = await makeCaller(instance)
    const answer = await post(token, body)
    expectError(t, answer, code, param)
    t.equal(await countKeys(sql, userId), 1)
  })
}

t.test('a member given twice is refused by its name, whatever its values', async (t) => {
  const { token, userId } = await makeCaller(instance)
  for (const last of ['"first"', '"last"', '5']) {
    const answer = await post(token, `{"name":"first","rate_limit_rpm":1,"name":${last},"rate_limit_rpm":2}`)
    expectError(t, answer, 'invalid_json', 'name')
  }
  t.equal(await countKeys(sql, userId), 1)
})

t.test('a name inherited through __proto__ is no name', async (t) => {
  const { token, userId } = await makeCaller(instance)
  const answer = await post(token, '{"__proto__":{"name":"inherited"}}')
  // Both is true of it: a member is unknown, and one is missing.
  const isMissing = answer.body.error.code === 'missing_parameter'
  expectError(
    t,
    answer,
    isMissing ? 'missing_parameter' : 'unknown_parameter',
    isMissing ? 'name' : '__proto__',
  )
  t.equal(await countKeys(sql, userId), 1)
})

t.test('nothing sent as __proto__ reaches the objects of the service', async (t) => {
  const { token } = await makeCaller(instance)
  await post(token, '{"name":"x","__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}')
  t.equal(({} as { polluted?: number }).polluted, undefined)
  t.equal((await post(token, '{"name":"clean"}')).body.rate_limit_rpm, 1000)
})

t.test('a name of 255 characters is counted in code points', async (t) => {
  const { token } = await makeCaller(instance)
  const longest = '🔑'.repeat(255)
  t.equal((await post(token, JSON.stringify({ name: longest }))).body.name, longest)
  expectError(t, await post(token, JSON.stringify({ name: `${longest}a` })), 'invalid_parameter', 'name')
})
