// Every 401 is one sequence of bytes and leaves the connection in one state, whatever was presented and whatever was asked; so is
// every 404 of an id. Beyond test/api/uniform-401.test.ts and uniform-404.test.ts: all ways to present a key, and connections
// that stay open.
import t from 'tap'
import { openDatabase } from '../api/database.ts'
import { deleteUser, makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { recordFigure } from '../soak.ts'
import { answersIn, type Shape, transcript } from './uniformity-transcript.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const { port } = instance
const sql = openDatabase(t, services.databaseUrl)
const caller = await makeCaller(instance)
const { token: usable } = caller
const stranger = await makeCaller(instance)

const longAgoS = 1_000_000_000
const json = 'Content-Type: application/json'
async function tokenOf(spoil: (key: { id: string; userId: string }) => Promise<unknown>): Promise<string> {
  const key = await makeCaller(instance)
  await spoil(key)
  return key.token
}

const revoked = await tokenOf(({ id }) => sql`update api_keys set revoked_at = now() where id = ${id}`)
const expired = (await makeCaller(instance, { expiresAt: longAgoS })).token
const ownerDeleted = await tokenOf(({ userId }) => deleteUser(instance, userId))
const elsewhere = await startInstance(t, services, {
  HASH_SECRET: 'another environment, with a secret of its own',
  ACCEPT_NEW_HASH_SECRET: '1',
})
const foreign = (await makeCaller(elsewhere)).token

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
  "a deleted owner's key": [`Bearer ${ownerDeleted}`],
  'a key of another HASH_SECRET': [`Bearer ${foreign}`],
  'two usable ones': [`Bearer ${usable}`, `Bearer ${usable}`],
  'a usable one and another': [`Bearer ${usable}`, 'Bearer lk_x'],
  'another and a usable one': ['Basic eDp5', `Bearer ${usable}`],
}

const key = `/v1/keys/${caller.id}`
const body = '{"name":"x"}'
const shapes: Record<string, Shape> = {
  GET: { line: 'GET /v1/keys HTTP/1.1' },
  'GET of a key': { line: `GET ${key} HTTP/1.1` },
  'GET of verify': { line: 'GET /v1/verify HTTP/1.1' },
  HEAD: { line: 'HEAD /v1/keys HTTP/1.1' },
  'POST with a body': { line: 'POST /v1/keys HTTP/1.1', headers: [json], body },
  'POST without one': { line: 'POST /v1/keys HTTP/1.1' },
  'POST with one that is too large': {
    line: 'POST /v1/keys HTTP/1.1',
    headers: [json],
    body: ' '.repeat(20_000),
  },
  'PATCH with a body': { line: `PATCH ${key} HTTP/1.1`, headers: [json], body },
  DELETE: { line: `DELETE ${key} HTTP/1.1` },
  'DELETE with a body': { line: `DELETE ${key} HTTP/1.1`, headers: [json], body },
  'an unknown route': { line: 'GET /nope HTTP/1.1' },
  'an unknown route with a body': { line: 'POST /v1/nope HTTP/1.1', headers: [json], body },
  'a wrong method': { line: 'PUT /v1/keys HTTP/1.1', headers: [json], body },
  'a connection to be closed': { line: 'GET /v1/keys HTTP/1.1', headers: ['Connection: close'] },
  'HTTP/1.0': { line: 'GET /v1/keys HTTP/1.0' },
}
/** These end the connection because they were asked to. */
const ending = new Set(['a connection to be closed', 'HTTP/1.0'])

const counted = { refusals: 0, misses: 0, differing: 0 }
const reference = await transcript(port, shapes.GET!, [])
for (const [asked, shape] of Object.entries(shapes)) {
  t.test(
    `the 401 of ${asked} is the same bytes on the same connection, whatever was presented`,
    async (t) => {
      // An answer to HEAD has no body, and one that ends the connection says so: each is compared within itself.
      const ofItsOwn = asked === 'HEAD' || ending.has(asked)
      const expected = ofItsOwn ? await transcript(port, shape, []) : reference
      t.match(answersIn(expected)[0], /^HTTP\/1\.1 401 Unauthorized$/)
      t.equal(answersIn(expected).length, ending.has(asked) ? 1 : 2, 'it goes on unless it was to end')
      for (const [what, values] of Object.entries(presented)) {
        const answered = await transcript(port, shape, values)
        t.equal(answered, expected, what)
        counted.refusals++
        if (answered !== expected) counted.differing++
      }
    },
  )
}

t.test('all seven reasons were among them', async (t) => {
  const rows = await sql`select reason from audit_log where reason is not null group by reason`
  t.strictSame(rows.map(({ reason }) => reason).sort(), [
    'expired',
    'missing_header',
    'owner_deleted',
    'revoked',
    'unknown_key',
    'wrong_prefix',
    'wrong_scheme',
  ])
})

const strangers = async (more: { expiresAt?: number } = {}) =>
  makeKey(instance, { userId: stranger.userId, ...more })
const revokedId = (await strangers()).id
await instance.ask('DELETE', `/v1/keys/${revokedId}`, { token: stranger.token })
const ownerless = await makeCaller(instance)
await deleteUser(instance, ownerless.userId)
const ids: Record<string, string> = {
  "a stranger's": (await strangers()).id,
  "a stranger's revoked": revokedId,
  "a stranger's expired": (await strangers({ expiresAt: longAgoS })).id,
  "a deleted user's": ownerless.id,
  'a mistyped prefix': caller.id.replace('apk_', 'akp_'),
  'a user prefix': caller.id.replace('apk_', 'usr_'),
  'the prefix alone': 'apk_',
  'no id': '',
  "the caller's user": caller.userId,
  'a percent-escape that is none': '%zz',
  'an over-long one': `apk_${'0'.repeat(8000)}`,
}
const absent = `apk_${'0'.repeat(caller.id.length - 4)}`
const misses: Record<string, (id: string) => Shape> = {
  GET: (id) => ({ line: `GET /v1/keys/${id} HTTP/1.1` }),
  HEAD: (id) => ({ line: `HEAD /v1/keys/${id} HTTP/1.1` }),
  PATCH: (id) => ({ line: `PATCH /v1/keys/${id} HTTP/1.1`, headers: [json], body }),
  DELETE: (id) => ({ line: `DELETE /v1/keys/${id} HTTP/1.1` }),
  'DELETE with a body': (id) => ({ line: `DELETE /v1/keys/${id} HTTP/1.1`, headers: [json], body }),
  starting_after: (id) => ({ line: `GET /v1/keys?starting_after=${id} HTTP/1.1` }),
}
for (const [asked, shape] of Object.entries(misses)) {
  t.test(`the 404 of ${asked} is the same bytes on the same connection, whatever the id`, async (t) => {
    const expected = await transcript(port, shape(absent), [`Bearer ${usable}`])
    t.strictSame(answersIn(expected), ['HTTP/1.1 404 Not Found', 'HTTP/1.1 200 OK'], 'the connection goes on')
    for (const [what, id] of Object.entries(ids)) {
      const answered = await transcript(port, shape(id), [`Bearer ${usable}`])
      t.equal(answered, expected, what)
      counted.misses++
      if (answered !== expected) counted.differing++
    }
  })
}

t.test('the caller was let in, and it was the id that was missed', async (t) => {
  t.match(await transcript(port, misses.GET!(caller.id), [`Bearer ${usable}`]), /^HTTP\/1\.1 200 OK\r\n/)
  recordFigure(t, 'uniformity', counted)
})
