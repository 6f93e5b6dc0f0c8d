// Every 401 is the same bytes and leaves the connection in the same state, whatever was presented
// and whatever was asked; so is every 404 of an id. It goes beyond test/api/authentication.test.ts:
// all ways to present a key, and connections that stay open.
import t, { type Test } from 'tap'
import { deleteUser, makeCaller, makeKey, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { recordFigure } from '../soak.ts'
import { host, json, lengthOf, message } from './requests.ts'
import { openWire } from './wire.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl)
const caller = await makeCaller(instance)
const { token: usable } = caller
const stranger = await makeCaller(instance)

const longAgoS = 1_000_000_000
async function spoilt(spoil: (key: { id: string; userId: string }) => Promise<unknown>) {
  const key = await makeCaller(instance)
  await spoil(key)
  return key
}
const { token: revoked } = await spoilt(
  ({ id }) => sql`update api_keys set revoked_at = now() where id = ${id}`,
)
const { token: expired } = await makeCaller(instance, { expiresAt: longAgoS })
const ownerless = await spoilt(({ userId }) => deleteUser(instance, userId))
// As if hashed under another HASH_SECRET.
const { token: foreign } = await spoilt(
  ({ id }) => sql`update api_keys set key_hash = sha256(key_hash) where id = ${id}`,
)

const otherLast = usable.endsWith('0') ? '1' : '0'
const presented: Record<string, string[]> = {
  'no header': [],
  'an empty header': [''],
  Basic: [`Basic ${Buffer.from(`${usable}:`).toString('base64')}`],
  Token: [`Token ${usable}`],
  'bearer in lower case': [`bearer ${usable}`],
  'the key alone': [usable],
  'two spaces': [`Bearer  ${usable}`],
  'a tab': [`Bearer\t${usable}`],
  quotes: [`Bearer "${usable}"`],
  'a word after it': [`Bearer ${usable} x`],
  'a trailing space after a revoked one': [`Bearer ${revoked} `],
  'a wrong prefix': [`Bearer sk_${usable.slice(3)}`],
  'the prefix in upper case': [`Bearer LK_${usable.slice(3)}`],
  'the prefix alone': ['Bearer lk_'],
  'a short token': [`Bearer ${usable.slice(0, -1)}`],
  'a long token': [`Bearer lk_${'0'.repeat(8000)}`],
  'a bad checksum': [`Bearer ${usable.slice(0, -1)}${otherLast}`],
  'an unknown key': [`Bearer lk_${'0'.repeat(38)}`],
  'a revoked key': [`Bearer ${revoked}`],
  'an expired key': [`Bearer ${expired}`],
  "a deleted owner's key": [`Bearer ${ownerless.token}`],
  'a key of another HASH_SECRET': [`Bearer ${foreign}`],
  'two usable ones': [`Bearer ${usable}`, `Bearer ${usable}`],
  'a usable one and another': [`Bearer ${usable}`, 'Bearer lk_x'],
  'another and a usable one': ['Basic eDp5', `Bearer ${usable}`],
}

/** A request except for its key. */
interface Shape {
  line: string
  headers?: string[]
  body?: string
}
const key = `/v1/keys/${caller.id}`
const body = '{"name":"x"}'
const shapes: Record<string, Shape> = {
  GET: { line: 'GET /v1/keys HTTP/1.1' },
  'GET of a key': { line: `GET ${key} HTTP/1.1` },
  'GET of verify': { line: 'GET /v1/verify HTTP/1.1' },
  HEAD: { line: 'HEAD /v1/keys HTTP/1.1' },
  'POST with a body': { line: 'POST /v1/keys HTTP/1.1', headers: [json], body },
  'POST without a body': { line: 'POST /v1/keys HTTP/1.1' },
  'POST with a large body': { line: 'POST /v1/keys HTTP/1.1', headers: [json], body: ' '.repeat(20_000) },
  'PATCH with a body': { line: `PATCH ${key} HTTP/1.1`, headers: [json], body },
  DELETE: { line: `DELETE ${key} HTTP/1.1` },
  'DELETE with a body': { line: `DELETE ${key} HTTP/1.1`, headers: [json], body },
  'an unknown route': { line: 'GET /nope HTTP/1.1' },
  'an unknown route with a body': { line: 'POST /v1/nope HTTP/1.1', headers: [json], body },
  'a wrong method': { line: 'PUT /v1/keys HTTP/1.1', headers: [json], body },
  'Connection: close': { line: 'GET /v1/keys HTTP/1.1', headers: ['Connection: close'] },
  'HTTP/1.0': { line: 'GET /v1/keys HTTP/1.0' },
}
/** These ask for the end of the connection. */
const ending = new Set(['Connection: close', 'HTTP/1.0'])

/** Needs no key, so its response depends on the connection alone. */
const probe = message(['GET /docs/errors/unauthorized HTTP/1.1', host, 'Connection: close'])

/**
 * All that comes back until the connection ends, with the probe sent behind the request: the
 * response to that shows whether the request has left the connection open. Masks what differs
 * between any two responses.
 */
async function transcript(
  { line, headers = [], body = '' }: Shape,
  authorization: string[],
): Promise<string> {
  const framing = body === '' ? [] : [lengthOf(body)]
  const keys = authorization.map((value) => `Authorization: ${value}`)
  const wire = openWire(instance.port, { toHead: line.startsWith('HEAD') })
  void wire.write(message([line, host, ...headers, ...framing, ...keys], body) + probe)
  const answers = await wire.ended()
  return (answers.map(({ raw }) => raw).join('') + wire.rest)
    .replace(/req_[0-9A-Za-z]+/g, 'req_…')
    .replace(/^date: .*$/gim, 'date: …')
    .replace(/^(x-ratelimit-(?:remaining|reset)): .*$/gim, '$1: …')
}
const statusLines = (raw: string) => raw.match(/HTTP\/1\.1 [0-9]{3} [A-Za-z ]+(?=\r\n)/g) ?? []

let differing = 0
/** Compares all variants, and says how many there are. */
async function compare<T>(
  t: Test,
  expected: string,
  variants: Record<string, T>,
  get: (variant: T) => Promise<string>,
) {
  const given = await Promise.all(
    Object.entries(variants).map(async ([what, variant]) => [what, await get(variant)] as const),
  )
  for (const [what, raw] of given) {
    t.equal(raw, expected, what)
    if (raw !== expected) differing++
  }
  return given.length
}

let refusals = 0
const reference = await transcript(shapes.GET!, [])
for (const [asked, shape] of Object.entries(shapes)) {
  t.test(
    `the 401 of ${asked} is the same bytes on the same connection, whatever was presented`,
    async (t) => {
      // A response to HEAD has no body, and one that ends the connection says so: each is compared
      // within itself.
      const ofItsOwn = asked === 'HEAD' || ending.has(asked)
      const expected = ofItsOwn ? await transcript(shape, []) : reference
      t.equal(statusLines(expected)[0], 'HTTP/1.1 401 Unauthorized')
      t.equal(statusLines(expected).length, ending.has(asked) ? 1 : 2, 'it goes on unless it was to end')
      refusals += await compare(t, expected, presented, (values) => transcript(shape, values))
    },
  )
}

t.test('all seven reasons were among them', async (t) => {
  const rows =
    await sql`select reason from audit_log where reason is not null group by reason order by reason collate "C"`
  t.strictSame(
    rows.map(({ reason }) => reason),
    ['expired', 'missing_header', 'owner_deleted', 'revoked', 'unknown_key', 'wrong_prefix', 'wrong_scheme'],
  )
})

const strangers = (more: { expiresAt?: number } = {}) =>
  makeKey(instance, { userId: stranger.userId, ...more })
const { id: revokedId } = await strangers()
await instance.ask('DELETE', `/v1/keys/${revokedId}`, { token: stranger.token })
const strangersKey = await strangers()
const ids: Record<string, string> = {
  "a stranger's": strangersKey.id,
  "a stranger's revoked": revokedId,
  "a stranger's expired": (await strangers({ expiresAt: longAgoS })).id,
  "a deleted user's": ownerless.id,
  "the caller's own with another prefix": caller.id.replace('apk_', 'akp_'),
  "the caller's own with a user's prefix": caller.id.replace('apk_', 'usr_'),
  "the caller's own without its prefix": caller.id.slice(4),
  "the caller's own in capitals": caller.id.toUpperCase(),
  "the caller's own and more": `${caller.id}0`,
  "the start of the caller's own": caller.id.slice(0, -1),
  "the caller's own with an escaped NUL": `${caller.id}%00`,
  "the caller's user": caller.userId,
  "an audit entry's": 'aud_0000000000',
  'the prefix alone': 'apk_',
  'no id': '',
  'a malformed percent-escape': '%zz',
  'a malformed percent-escape at the end': `${caller.id}%`,
  'an overlong UTF-8 escape': '%c0%af',
  'an escaped NUL': '%00',
  'an escaped slash': '%2f',
  'an escaped newline': '%0d%0a',
  'a quote': "'%20or%20'1'='1",
  'an emoji': '%F0%9F%94%91',
  '300 characters': `apk_${'a'.repeat(296)}`,
  '10,000 characters': `apk_${'a'.repeat(9996)}`,
  'a member of every object': '__proto__',
}
const absent = `apk_${'0'.repeat(caller.id.length - 4)}`
const missed: Record<string, (id: string) => Shape> = {
  GET: (id) => ({ line: `GET /v1/keys/${id} HTTP/1.1` }),
  HEAD: (id) => ({ line: `HEAD /v1/keys/${id} HTTP/1.1` }),
  PATCH: (id) => ({ line: `PATCH /v1/keys/${id} HTTP/1.1`, headers: [json], body }),
  DELETE: (id) => ({ line: `DELETE /v1/keys/${id} HTTP/1.1` }),
  'DELETE with a body': (id) => ({ line: `DELETE /v1/keys/${id} HTTP/1.1`, headers: [json], body }),
  rotate: (id) => ({ line: `POST /v1/keys/${id}/rotate HTTP/1.1` }),
  starting_after: (id) => ({ line: `GET /v1/keys?starting_after=${id} HTTP/1.1` }),
}
let misses = 0
for (const [asked, shape] of Object.entries(missed)) {
  t.test(`the 404 of ${asked} is the same bytes on the same connection, whatever the id`, async (t) => {
    const expected = await transcript(shape(absent), [`Bearer ${usable}`])
    t.strictSame(
      statusLines(expected),
      ['HTTP/1.1 404 Not Found', 'HTTP/1.1 200 OK'],
      'the connection goes on',
    )
    misses += await compare(t, expected, ids, (id) => transcript(shape(id), [`Bearer ${usable}`]))
  })
}

t.test('the caller was let in, and it was the id that was missed', async (t) => {
  t.match(await transcript(missed.GET!(caller.id), [`Bearer ${usable}`]), /^HTTP\/1\.1 200 OK\r\n/)
  const { body } = await instance.ask('GET', `/v1/keys/${strangersKey.id}`, { token: stranger.token })
  t.match(body, { name: strangersKey.name, revoked_at: null }, "a stranger's key is as it was")
  recordFigure(t, 'uniformity', { refusals, misses, differing })
})
