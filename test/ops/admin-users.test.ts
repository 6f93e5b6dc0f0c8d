// Users over the admin API: what each route takes and answers, and that what it changes holds
// everywhere and names the operator.
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { poolBounds } from '../../src/wiring/pools.ts'
import { type Code, expectError } from '../api/expect-error.ts'
import { nowS } from '../api/values.ts'
import { makeKey, realTimeLimits, startInstance } from '../instance.ts'
import { actor } from '../postgres/open-stores.ts'
import { until } from '../process/until.ts'
import { ada, bob, startAdmin, verify } from './admin.ts'

const { services, instance, ops, sql, admin, entriesOf, startOther, untilConfirmed } = await startAdmin(t)
const other = await startOther()

let made = 0
const aUser = async (more: object = {}) =>
  (await admin('POST', 'users', { name: `user ${++made}`, ...more })).body

t.test('a user is created, read and listed as one object', async (t) => {
  const created = await admin('POST', 'users', { name: ' Ada ✓', external_id: 'crm/1 ✓' })
  t.equal(created.status, 201)
  t.strictSame(Object.keys(created.body), ['id', 'name', 'external_id', 'created_at', 'deleted_at'])
  t.match(created.body, { id: /^usr_/, name: ' Ada ✓', external_id: 'crm/1 ✓', deleted_at: null })
  t.ok(Math.abs(created.body.created_at - nowS()) <= 5)
  t.equal(created.headers.get('location'), `/admin/users/${created.body.id}`)
  t.equal(created.headers.get('cache-control'), 'no-store')
  const read = await ops.ask('GET', created.headers.get('location')!, { token: bob })
  t.strictSame([read.status, read.body], [200, created.body])
  t.strictSame((await admin('GET', `users?external_id=${encodeURIComponent('crm/1 ✓')}`)).body, {
    object: 'list',
    data: [created.body],
    has_more: false,
    next_cursor: null,
  })
  const other = await admin('POST', 'users', { name: 'Bob', external_id: 'CRM/1 ✓' })
  t.equal(other.status, 201, 'case matters')
  const found = await admin('GET', `users?external_id=${encodeURIComponent('CRM/1 ✓')}`)
  t.strictSame(found.body.data, [other.body])
  t.strictSame((await aUser()).external_id, null)
})

t.test('an act has the address of a client that has reset its connection', async (t) => {
  const client = connect(ops.port, '127.0.0.1').on('error', () => {})
  client.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n')
  await once(client, 'data')
  const body = '{"name":"of a client that has gone"}'
  client.write(
    `POST /admin/users HTTP/1.1\r\nHost: x\r\nUser-Agent: gone\r\nAuthorization: Bearer ${ada}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  )
  // In the same turn: the listener, in this process, has not read the request yet.
  client.resetAndDestroy()
  const entries = () => sql`select event, ip from audit_log where user_agent = 'gone'`
  await until('it is in the audit log', async () => (await entries()).length > 0)
  t.match(await entries(), [{ event: 'user.created', ip: '127.0.0.1' }])
})

t.test('a key in place of an external_id finds nobody, and is not sent to Postgres', async (t) => {
  const { users, tokenFormat } = instance.service.stores
  const calls = t.capture(users, 'list', users.list)
  for (const text of [tokenFormat.mint(), `my ${tokenFormat.mint()}.`])
    t.strictSame((await admin('GET', `users?external_id=${encodeURIComponent(text)}`)).body, {
      object: 'list',
      data: [],
      has_more: false,
      next_cursor: null,
    })
  t.strictSame(calls(), [])
})

t.test('every act on a user is in the audit log once, under the name of its operator', async (t) => {
  const created = await admin('POST', 'users', { name: 'audited', external_id: 'audited' })
  const { id } = created.body
  await makeKey(instance, { userId: id })
  const changed = await admin('PATCH', `users/${id}`, { external_id: null }, { token: bob })
  const revoked = await admin('POST', `users/${id}/revoke-keys`)
  const deleted = await admin('DELETE', `users/${id}`, undefined, { headers: { 'user-agent': 'a test' } })
  const expected = [
    [
      created,
      { event: 'user.created', actor: 'operator:ada', details: { name: 'audited', external_id: 'audited' } },
    ],
    [changed, { event: 'user.updated', actor: 'operator:bob', details: { external_id: null } }],
    [revoked, { event: 'user.keys_revoked', actor: 'operator:ada', details: { revoked: 1 } }],
    [deleted, { event: 'user.deleted', method: 'DELETE', path: `/admin/users/${id}`, user_agent: 'a test' }],
  ] as const
  for (const [answer, entry] of expected) {
    t.match(
      [...(await entriesOf(answer))],
      [{ ...entry, user_id: id, key_id: null, reason: null, ip: '127.0.0.1' }],
    )
    t.equal((await entriesOf(answer)).length, 1)
  }
  const [entry] = await entriesOf(changed)
  t.strictSame(entry!.details, { external_id: null }, 'cleared, and nothing else changed')
  for (const idle of [
    await admin('DELETE', `users/${id}`),
    await admin('POST', `users/${id}/revoke-keys`),
    await admin('PATCH', 'users/usr_nobody', { name: 'x' }),
  ])
    t.strictSame([...(await entriesOf(idle))], [], 'what changes nothing leaves none')
})

t.test('no two users have one external_id, and a deleted one has it until it is cleared', async (t) => {
  const [first, second] = [await aUser({ external_id: 'taken' }), await aUser({ external_id: 'free' })]
  const counted = async () => (await sql`select count(*)::int as n from users`)[0]!.n
  const before = await counted()
  const creation = await admin('POST', 'users', { name: 'x', external_id: 'taken' })
  expectError(t, creation, 'external_id_taken', 'external_id')
  t.strictSame([...(await entriesOf(creation))], [])
  t.equal(await counted(), before)
  expectError(
    t,
    await admin('PATCH', `users/${second.id}`, { name: 'y', external_id: 'taken' }),
    'external_id_taken',
    'external_id',
  )
  t.strictSame((await admin('GET', `users/${second.id}`)).body, second, 'and nothing else is changed')
  t.strictSame((await admin('PATCH', `users/${first.id}`, { external_id: 'taken' })).body, first, 'its own')
  await admin('DELETE', `users/${first.id}`)
  expectError(
    t,
    await admin('PATCH', `users/${second.id}`, { external_id: 'taken' }),
    'external_id_taken',
    'external_id',
  )
  t.equal((await admin('PATCH', `users/${first.id}`, { external_id: null })).status, 200)
  t.equal((await admin('PATCH', `users/${second.id}`, { external_id: 'taken' })).body.external_id, 'taken')
})

t.test('a change sets what it names and nothing else', async (t) => {
  const user = await aUser({ external_id: 'named' })
  t.strictSame((await admin('PATCH', `users/${user.id}`, { name: 'new' })).body, { ...user, name: 'new' })
  const cleared = await admin('PATCH', `users/${user.id}`, { external_id: null })
  t.strictSame(cleared.body, { ...user, name: 'new', external_id: null })
  t.strictSame((await admin('GET', `users/${user.id}`)).body, cleared.body)
})

const key = instance.service.stores.tokenFormat.mint()
const badTexts = [
  '',
  '  ',
  'a\nb',
  'a\u0000b',
  'a\u0085b',
  '\ud800',
  'x'.repeat(256),
  5,
  true,
  [],
  {},
  `of ${key}`,
]
const refused: [method: string, path: string, body: unknown, code: Code, param: string][] = [
  ['POST', 'users', {}, 'missing_parameter', 'name'],
  ['POST', 'users', [], 'invalid_parameter', ''],
  ['POST', 'users', { name: 'x', externalId: 'y' }, 'unknown_parameter', 'externalId'],
  ['POST', 'users', { name: 'x', id: 'usr_1' }, 'unknown_parameter', 'id'],
  ['PATCH', 'users/usr_1', {}, 'missing_parameter', ''],
  ['PATCH', 'users/usr_1', { deleted_at: null }, 'unknown_parameter', 'deleted_at'],
  ['PATCH', 'users/usr_1', { name: null }, 'invalid_parameter', 'name'],
  ...['', '0', '101', '1.5', 'x', '1&limit=2'].map(
    (limit) => ['GET', `users?limit=${limit}`, undefined, 'invalid_parameter', 'limit'] as never,
  ),
  ['GET', 'users?external_id=', undefined, 'invalid_parameter', 'external_id'],
  ['GET', 'users?external_id=a&external_id=b', undefined, 'invalid_parameter', 'external_id'],
  ['GET', 'users?name=x', undefined, 'unknown_parameter', 'name'],
  ['GET', 'users?starting_after=usr_nobody', undefined, 'not_found', 'starting_after'],
  ['GET', 'users?starting_after=%00', undefined, 'not_found', 'starting_after'],
]
for (const bad of badTexts) {
  refused.push(['POST', 'users', { name: bad }, 'invalid_parameter', 'name'])
  refused.push(['POST', 'users', { name: 'x', external_id: bad }, 'invalid_parameter', 'external_id'])
  refused.push(['PATCH', 'users/usr_1', { name: bad }, 'invalid_parameter', 'name'])
  refused.push(['PATCH', 'users/usr_1', { external_id: bad }, 'invalid_parameter', 'external_id'])
}
t.test('an invalid value is refused and named, and changes nothing', async (t) => {
  const before = await sql`select users::text from users order by id`
  for (const [method, path, body, code, param] of refused) {
    t.comment(method, path, JSON.stringify(body)?.slice(0, 60))
    expectError(t, await admin(method, path, body), code, param)
  }
  t.strictSame([...(await sql`select users::text from users order by id`)], [...before])
})

t.test('the longest names are taken as they are', async (t) => {
  const longest = { name: '🔑'.repeat(255), external_id: '🗝'.repeat(255) }
  t.match(await aUser(longest), longest)
})

t.test('an absent user is the same 404 for every route', async (t) => {
  for (const id of ['usr_nobody', 'apk_1', '%00', "'", key, 'x'.repeat(5000)])
    for (const [method, path, body] of [
      ['GET', `users/${id}`],
      ['PATCH', `users/${id}`, { name: 'x' }],
      ['PATCH', `users/${id}`, { external_id: 'of nobody' }],
      ['DELETE', `users/${id}`],
      ['POST', `users/${id}/revoke-keys`],
    ] as const)
      expectError(t, await admin(method, path, body), 'not_found', 'id')
})

t.test('the pages of a list are newest first, without gaps and repetitions', async (t) => {
  const users = []
  for (let n = 0; n < 5; n++) users.unshift((await aUser()).id)
  // Two of one moment are in the order of their ids.
  await sql`update users set created_at = (select created_at from users where id = ${users[2]}) where id = ${users[1]}`
  const walked: string[] = []
  let cursor = ''
  for (let page = 0; page < 3; page++) {
    const { body } = await admin('GET', `users?limit=2${cursor}`)
    t.equal(body.object, 'list')
    t.equal(body.data.length, 2)
    t.equal(body.has_more, true)
    t.equal(body.next_cursor, body.data[1].id)
    walked.push(...body.data.map(({ id }: { id: string }) => id))
    cursor = `&starting_after=${body.next_cursor}`
  }
  t.strictSame(walked.slice(0, 5), users)
  const { body } = await admin('GET', 'users')
  t.equal(body.data.length, (await sql`select from users`).length)
  const last = body.data.at(-1).id
  t.match((await admin('GET', `users?starting_after=${last}`)).body, {
    data: [],
    has_more: false,
    next_cursor: null,
  })
})

t.test('the keys of a user are revoked on every instance when the answer comes', async (t) => {
  const user = await aUser()
  const tokens = []
  for (let n = 0; n < 3; n++) tokens.push(await makeKey(instance, { userId: user.id }))
  const strangers = await makeKey(instance, { userId: (await aUser()).id })
  const before = tokens.pop()!
  await admin('DELETE', `keys/${before.id}`)
  for (const { token } of [...tokens, strangers]) t.equal(await verify(other, token), 200)
  const revoked = await admin('POST', `users/${user.id}/revoke-keys`)
  t.strictSame([revoked.status, revoked.body], [200, { revoked: 2 }], 'those not revoked before')
  for (const { token } of tokens) t.equal(await verify(other, token), 401)
  t.equal(await verify(other, strangers.token), 200)
  const entries = async (query: string) => (await admin('GET', `audit?${query}`)).body
  const events = async (query: string) =>
    (await entries(query)).data.map(({ event }: { event: string }) => event)
  for (const { id } of tokens) {
    const { data, next_cursor } = await entries(`key_id=${id}&limit=2`)
    const ofAll = { event: 'user.keys_revoked', request_id: revoked.headers.get('x-request-id') }
    t.match(data, [{ event: 'auth.refused' }, ofAll])
    t.strictSame(await events(`key_id=${id}&starting_after=${next_cursor}`), ['key.created'])
    t.strictSame(await events(`key_id=${id}&event=user.keys_revoked`), ['user.keys_revoked'])
    t.strictSame(await events(`key_id=${id}&event=key.created`), ['key.created'])
  }
  t.strictSame(await events(`key_id=${before.id}`), ['key.revoked', 'key.created'], 'not again')
  t.strictSame((await admin('POST', `users/${user.id}/revoke-keys`)).body, { revoked: 0 })
  t.equal((await admin('GET', `users/${user.id}`)).body.deleted_at, null)
  t.equal(
    await verify(other, (await makeKey(instance, { userId: user.id })).token),
    200,
    'it may get new ones',
  )
})

t.test(
  'a deleted user stays, and its keys are refused on every instance when the answer comes',
  async (t) => {
    const user = await aUser()
    const { token } = await makeKey(instance, { userId: user.id })
    t.equal(await verify(other, token), 200)
    // What a DELETE carries has no meaning.
    const deleted = await admin('DELETE', `users/${user.id}`, undefined, {
      headers: { 'content-type': 'application/json' },
      body: '{',
    })
    t.equal(await verify(other, token), 401)
    t.equal(deleted.status, 200)
    t.ok(Math.abs(deleted.body.deleted_at - nowS()) <= 5)
    t.strictSame((await admin('GET', `users/${user.id}`)).body, deleted.body)
    t.strictSame((await admin('DELETE', `users/${user.id}`)).body, deleted.body, 'again')
  },
)

t.test('a repeated revocation is published again, as its first answer may have been lost', async (t) => {
  const user = await aUser()
  const { id, token } = await makeKey(instance, { userId: user.id })
  t.equal(await verify(other, token), 200)
  await untilConfirmed(id)
  await sql`update api_keys set revoked_at = now(), version = version + 1 where id = ${id}`
  t.equal(await verify(other, token), 200, 'nothing was published')
  t.strictSame((await admin('POST', `users/${user.id}/revoke-keys`)).body, { revoked: 0 })
  t.equal(await verify(other, token), 401)
})

t.test('bodies, methods and paths are held to the rules of the public listener', async (t) => {
  const headers = { 'content-type': 'application/json' }
  const post = (body: string, more: Record<string, string> = {}) =>
    ops.ask('POST', '/admin/users', { token: ada, body, headers: { ...headers, ...more } })
  const wrong: [string, Record<string, string>, Code, string][] = [
    ['', {}, 'invalid_json', ''],
    ['{', {}, 'invalid_json', ''],
    ['{"name":"x","name":"y"}', {}, 'invalid_json', 'name'],
    ['{"name":"x"}', { 'content-type': 'text/plain' }, 'unsupported_media_type', ''],
    [`{"name":"${'x'.repeat(16_384)}"}`, {}, 'payload_too_large', ''],
    [`{"name":"x","${key}":1}`, {}, 'unknown_parameter', 'lk_[redacted]'],
    [`{"${key}":1,"${key}":1}`, {}, 'invalid_json', 'lk_[redacted]'],
  ]
  for (const [body, more, code, param] of wrong) expectError(t, await post(body, more), code, param)
  for (const [method, path, allow] of [
    ['PUT', 'users', 'POST, GET, HEAD'],
    ['POST', 'users/usr_1', 'GET, HEAD, PATCH, DELETE'],
    ['GET', 'users/usr_1/revoke-keys', 'POST'],
  ] as const) {
    const answer = await admin(method, path)
    expectError(t, answer, 'method_not_allowed')
    t.strictSame(answer.headers.get('allow')!.split(', ').sort(), allow.split(', ').sort())
  }
  const absent = await admin('GET', 'nothing')
  expectError(t, absent, 'route_not_found')
  t.match(absent.body.error.suggestion, '/admin/openapi.json')
})

t.test('what takes no body ignores one', async (t) => {
  const user = await aUser()
  const key = await makeKey(instance, { userId: user.id })
  const ignored = { headers: { 'content-type': 'application/json' }, body: '{"name":' }
  for (const [method, path] of [
    ['DELETE', `keys/${key.id}`],
    ['POST', `users/${user.id}/revoke-keys`],
    ['DELETE', `users/${user.id}`],
  ] as const)
    t.equal((await admin(method, path, undefined, ignored)).status, 200, `${method} ${path}`)
})

t.test('all keys of a user are changed, even if that takes longer than a request may', async (t) => {
  const { users } = (await startInstance(t, services, {}, realTimeLimits)).service.stores
  for (const change of [users.revokeKeys, users.remove]) {
    const { id } = await aUser()
    await makeKey(instance, { userId: id })
    let changing: Promise<unknown> | undefined
    await sql.begin(async (tx) => {
      await tx`select from api_keys where user_id = ${id} for update`
      changing = change(id, actor())
      changing.catch(() => {})
      await pause(poolBounds.management.timeoutMs)
    })
    t.ok(await changing)
  }
})
