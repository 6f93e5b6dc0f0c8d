// Bodies as properties: every valid one is taken and echoed exactly, every other is refused by name and creates nothing.
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { countKeys, openDatabase } from './database.ts'
import { limits, moments, names, notLimits, notMoments, notNames, optional } from './values.ts'

const services = await useServices(t)
const instance = await startInstance(t, services, { MAX_KEYS_PER_USER: '1000000' })
const sql = openDatabase(t, services.databaseUrl)
const { id, token, userId } = await makeCaller(instance)

const sendAs = (method: string, path: string) => (body: string) =>
  instance.ask(method, path, { token, headers: { 'content-type': 'application/json' }, body })
const post = sendAs('POST', '/v1/keys')
const patch = sendAs('PATCH', `/v1/keys/${id}`)

/** But for the caller's last use, which every request is. */
async function state() {
  const [row] = await sql`select to_jsonb(k) - 'last_used_at' as row from api_keys k where id = ${id}`
  return { keys: await countKeys(sql, userId), caller: row!.row }
}

/** The refusal of a creation and of the same change, which leave everything as it was. */
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

t.test('any valid creation is taken and echoed exactly, then and later', async () => {
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
    { numRuns: 100 },
  )
})

t.test('any valid change is taken and echoed exactly, and changes nothing else', async () => {
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
    { numRuns: 60 },
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
    { numRuns: 30 },
  )
})

t.test('any name that is not allowed is refused, by creation and change', async () => {
  await fc.assert(
    fc.asyncProperty(notNames, optional(limits), (name, rate_limit_rpm) =>
      assertRefused(JSON.stringify({ name, rate_limit_rpm }), 'invalid_parameter', 'name'),
    ),
    { numRuns: 80 },
  )
})

t.test('any limit that is not allowed is refused, by creation and change', async () => {
  await fc.assert(
    fc.asyncProperty(names, notLimits, (name, rate_limit_rpm) =>
      assertRefused(JSON.stringify({ name, rate_limit_rpm }), 'invalid_parameter', 'rate_limit_rpm'),
    ),
    { numRuns: 80 },
  )
})

t.test('any expiry that is not allowed is refused, by creation and change', async () => {
  await fc.assert(
    fc.asyncProperty(names, notMoments, (name, expires_at) =>
      assertRefused(JSON.stringify({ name, expires_at }), 'invalid_parameter', 'expires_at'),
    ),
    { numRuns: 80 },
  )
})

const known = ['name', 'rate_limit_rpm', 'expires_at']
t.test('any unknown member is refused by its name, whatever its value', async () => {
  const members = fc
    .oneof(
      fc.string({ unit: 'binary', maxLength: 40 }).filter((member) => !/\p{Cs}/u.test(member)),
      fc.constantFrom(
        '__proto__',
        'constructor',
        'prototype',
        'toString',
        'hasOwnProperty',
        'Name',
        'name ',
        '',
        'a.b',
      ),
      fc.constantFrom(
        'a/b',
        '~0',
        '~1',
        '"',
        "'",
        '\\',
        'id',
        'plain_key',
        'user_id',
        'revoked_at',
        'NAME',
        '0',
        '💥',
      ),
    )
    .filter((member) => !known.includes(member))
  await fc.assert(
    fc.asyncProperty(members, fc.jsonValue({ maxDepth: 3 }), names, (member, value, name) =>
      assertRefused(
        `{"name":${JSON.stringify(name)},${JSON.stringify(member)}:${JSON.stringify(value)}}`,
        'unknown_parameter',
        member,
      ),
    ),
    { numRuns: 120 },
  )
})

t.test('any JSON that is no object is refused with no field named', async () => {
  const values = fc
    .jsonValue({ maxDepth: 2 })
    .filter((value) => typeof value !== 'object' || value === null || Array.isArray(value))
  await fc.assert(
    fc.asyncProperty(values, (value) => assertRefused(JSON.stringify(value), 'invalid_parameter', '')),
    { numRuns: 40 },
  )
})

t.test('any text that is no JSON is refused as such, and is no fault of ours', async () => {
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
    { numRuns: 80 },
  )
})

t.test('the properties made many keys and no fault', async (t) => {
  t.ok((await countKeys(sql, userId)) > 100)
  t.same(
    instance.log.filter(({ level }) => Number(level) >= 50),
    [],
  )
})
