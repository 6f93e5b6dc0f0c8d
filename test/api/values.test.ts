// Bodies as properties: every valid one is accepted and returned exactly, every other is refused by
// name and creates nothing.
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { countKeys } from './count-keys.ts'
import { limits, moments, names, notLimits, notMoments, notNames, optional } from './values.ts'

const services = await useServices(t)
const instance = await startInstance(t, services, { MAX_KEYS_PER_USER: '1000000' })
const sql = openDatabase(t, services.databaseUrl)
const { id, token, userId } = await makeCaller(instance)

const sendAs = (method: string, path: string) => (body: string) =>
  instance.ask(method, path, { token, headers: { 'content-type': 'application/json' }, body })
const post = sendAs('POST', '/v1/keys')
const patch = sendAs('PATCH', `/v1/keys/${id}`)

/** Without the caller's last use, which every request changes. */
async function state() {
  const [row] = await sql`select to_jsonb(k) - 'last_used_at' as row from api_keys k where id = ${id}`
  return { keys: await countKeys(sql, userId), caller: row!.row }
}

/** The same body is refused as a creation and as a change, and nothing has changed. */
async function assertRefused(body: string, code: string, param: string) {
  const before = await state()
  for (const answer of [await post(body), await patch(body)]) {
    const { error } = answer.body
    assert.deepEqual([answer.status, error?.code, error?.param], [400, code, param], body)
  }
  assert.deepEqual(await state(), before)
}

const validBodies = fc.record(
  { name: names, rate_limit_rpm: limits, expires_at: moments },
  { requiredKeys: ['name'], noNullPrototype: true },
)

/** The longest and the highest of what is allowed. */
const atBounds = { name: '🔑'.repeat(255), rate_limit_rpm: 1_000_000_000, expires_at: 4_102_444_799 }

t.test('any valid creation is accepted and returned exactly, then and later', async () => {
  await fc.assert(
    fc.asyncProperty(validBodies, async (body) => {
      const { status, body: created } = await post(JSON.stringify(body))
      assert.equal(status, 201, JSON.stringify(created))
      const { plain_key, ...key } = created
      const wanted = { rate_limit_rpm: 1000, expires_at: null, ...body }
      const { name, rate_limit_rpm, expires_at } = key
      assert.deepEqual({ name, rate_limit_rpm, expires_at }, wanted)
      assert.deepEqual((await instance.ask('GET', `/v1/keys/${key.id}`, { token })).body, key)
      assert.deepEqual((await instance.ask('GET', '/v1/keys?limit=1', { token })).body.data, [key])
    }),
    { numRuns: 40, examples: [[atBounds]] },
  )
})

t.test('any valid change is made and returned exactly, and changes nothing else', async () => {
  const changes = fc
    .record(
      { name: names, rate_limit_rpm: limits, expires_at: moments },
      { requiredKeys: [], noNullPrototype: true },
    )
    .filter((change) => Object.keys(change).length > 0)
  await fc.assert(
    fc.asyncProperty(changes, async (change) => {
      const { body: created } = await post('{"name":"to be changed"}')
      const { plain_key, ...key } = created
      const answer = await sendAs('PATCH', `/v1/keys/${key.id}`)(JSON.stringify(change))
      assert.equal(answer.status, 200, answer.text)
      assert.deepEqual(answer.body, { ...key, ...change })
      assert.deepEqual((await instance.ask('GET', `/v1/keys/${key.id}`, { token })).body, answer.body)
    }),
    { numRuns: 25 },
  )
})

t.test('whitespace, escapes and the order of members make no difference', async () => {
  const escaped = (name: string) =>
    `"${[...name]
      .flatMap((c) => c.split(''))
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join('')}"`
  await fc.assert(
    fc.asyncProperty(
      names.filter((name) => name.length < 200),
      limits,
      async (name, limit) => {
        const { status, body } = await post(
          ` {\n\t"rate_limit_rpm" : ${limit} ,\r\n "n\\u0061me":${escaped(name)} } `,
        )
        assert.equal(status, 201)
        assert.deepEqual([body.name, body.rate_limit_rpm], [name, limit])
      },
    ),
    { numRuns: 15 },
  )
})

const bad: [member: string, bodies: fc.Arbitrary<object>][] = [
  ['name', fc.record({ name: notNames, rate_limit_rpm: optional(limits) })],
  ['rate_limit_rpm', fc.record({ name: names, rate_limit_rpm: notLimits })],
  ['expires_at', fc.record({ name: names, expires_at: notMoments })],
]
for (const [member, bodies] of bad) {
  t.test(`any ${member} that is not allowed is refused, by creation and change`, async () => {
    await fc.assert(
      fc.asyncProperty(bodies, (body) => assertRefused(JSON.stringify(body), 'invalid_parameter', member)),
      { numRuns: 25 },
    )
  })
}

t.test('any unknown member is refused by its name, whatever its value', async () => {
  const known = ['name', 'rate_limit_rpm', 'expires_at']
  const odd = '__proto__ constructor prototype toString hasOwnProperty Name NAME a.b a/b ~0 ~1 " \' \\ 0 💥'
  const readOnly = 'id plain_key key_prefix user_id created_at last_used_at revoked_at'
  const members = fc
    .oneof(
      fc.string({ unit: 'binary', maxLength: 40 }).filter((member) => !/\p{Cs}/u.test(member)),
      fc.constantFrom('name ', '', ...odd.split(' '), ...readOnly.split(' ')),
    )
    .filter((member) => !known.includes(member))
  await fc.assert(
    fc.asyncProperty(members, fc.jsonValue({ maxDepth: 3 }), names, (member, value, name) => {
      const pairs = `"name":${JSON.stringify(name)},${JSON.stringify(member)}:${JSON.stringify(value)}`
      return assertRefused(`{${pairs}}`, 'unknown_parameter', member)
    }),
    { numRuns: 40 },
  )
  for (const member of readOnly.split(' '))
    await assertRefused(`{"name":"x","${member}":null}`, 'unknown_parameter', member)
})

t.test('any JSON that is not an object is refused without a param', async () => {
  const values = fc
    .jsonValue({ maxDepth: 2 })
    .filter((value) => typeof value !== 'object' || value === null || Array.isArray(value))
  await fc.assert(
    fc.asyncProperty(values, (value) => assertRefused(JSON.stringify(value), 'invalid_parameter', '')),
    { numRuns: 15 },
  )
})

t.test('any text that is not JSON is invalid_json', async () => {
  const isJson = (text: string) => {
    try {
      JSON.parse(text)
      return true
    } catch {
      return false
    }
  }
  const texts = fc.oneof(
    fc.string({ unit: 'grapheme', maxLength: 100 }),
    fc.tuple(validBodies, fc.nat()).map(([body, cut]) => {
      const text = JSON.stringify(body)
      return text.slice(0, cut % text.length)
    }),
  )
  await fc.assert(
    fc.asyncProperty(
      texts.filter((text) => !isJson(text)),
      (text) => assertRefused(text, 'invalid_json', ''),
    ),
    { numRuns: 30 },
  )
})

// JSON has numbers, not kinds of numbers: 5.0 is the integer 5 (as JSON Schema has it).
t.test('a number may be written in any way that JSON has', async () => {
  const written = { '1000': 1000, '5.0': 5, '1e3': 1000, '1E+3': 1000, '1.5e1': 15, '100e-1': 10 }
  for (const [literal, value] of Object.entries(written)) {
    const { status, body } = await post(`{"name":"x","rate_limit_rpm":${literal}}`)
    assert.deepEqual([status, body.rate_limit_rpm], [201, value], literal)
  }
})

t.test('literals that only look like allowed values are rejected', async () => {
  const outside = [
    ...'-0 0 0.0 -5 1.0000001 1e9999 -1e9999 1e-9999 9007199254740993 1000000001 1e10'.split(' '),
    ...'123456789012345678901234567890 18446744073709551616 -9223372036854775809 "1e3" [1000] true'.split(
      ' ',
    ),
  ]
  for (const literal of outside) {
    await assertRefused(`{"name":"x","rate_limit_rpm":${literal}}`, 'invalid_parameter', 'rate_limit_rpm')
  }
  for (const literal of ['1e400', '4102444800.0', '1.5', '-0', '253402300800', '"never"']) {
    await assertRefused(`{"name":"x","expires_at":${literal}}`, 'invalid_parameter', 'expires_at')
  }
  for (const literal of ['0x10', '010', '+5', '.5', '5.', 'Infinity', '1_000', '1e', '--1']) {
    await assertRefused(`{"name":"x","rate_limit_rpm":${literal}}`, 'invalid_json', '')
  }
  for (const name of ['"\\ud83d"', '"\\udd11\\ud83d"', '"a\\u0000b"', '"\\u0085x"', '{"name":"x"}']) {
    await assertRefused(`{"name":${name}}`, 'invalid_parameter', 'name')
  }
  await assertRefused(`{"name":"${'🔑'.repeat(256)}"}`, 'invalid_parameter', 'name')
  const deep = 7000
  await assertRefused(`{"name":${'['.repeat(deep)}${']'.repeat(deep)}}`, 'invalid_parameter', 'name')
})

t.test('a member sent twice is refused by its name, before any value is looked at', async () => {
  for (const value of ['"first"', '"last"', '5']) {
    await assertRefused(`{"name":"first","rate_limit_rpm":1,"name":${value}}`, 'invalid_json', 'name')
  }
})

t.test('nothing sent as __proto__ reaches the objects of the service', async (t) => {
  const polluted = '{"prototype":{"polluted":1}}'
  await assertRefused(`{"name":"x","__proto__":${polluted}}`, 'unknown_parameter', '__proto__')
  await assertRefused(`{"name":"x","constructor":${polluted}}`, 'unknown_parameter', 'constructor')
  t.equal((await post('{"__proto__":{"name":"inherited"}}')).status, 400)
  t.equal(({} as { polluted?: number }).polluted, undefined)
})

t.test('the properties created many keys and met no fault', async (t) => {
  t.ok((await countKeys(sql, userId)) > 75)
  t.same(
    instance.log.filter(({ level }) => Number(level) >= 50),
    [],
  )
})
