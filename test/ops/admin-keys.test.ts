// Keys over the admin API: any user's, by the rules of the callers' own routes, and changed
// everywhere when the answer comes.
import t from 'tap'
import { AdminListKeysQuery } from '../../schemas/key.ts'
import { tokenFormat } from '../../src/rules/token.ts'
import { type Code, expectError } from '../api/expect-error.ts'
import { nowS } from '../api/values.ts'
import { deleteUser, makeKey, makeUser } from '../instance.ts'
import { bob, startAdmin, verify } from './admin.ts'

const { instance, sql, admin, entriesOf, startOther } = await startAdmin(t, { MAX_KEYS_PER_USER: '8' })
const other = await startOther()
const user = await makeUser(instance)
const aKey = async (more: object = {}) =>
  makeKey(instance, { userId: (await makeUser(instance)).id, ...more })

const members = [
  ...['id', 'name', 'key_prefix', 'rate_limit_rpm', 'last_used_at'],
  ...['expires_at', 'created_at', 'revoked_at', 'user_id'],
]

t.test('a key is created for any user, and its secret is shown once', async (t) => {
  const wanted = { user_id: user.id, name: 'ci ✓', rate_limit_rpm: 7, expires_at: nowS() + 600 }
  const created = await admin('POST', 'keys', wanted)
  t.equal(created.status, 201)
  const { plain_key, ...key } = created.body
  t.same(Object.keys(key).sort(), [...members].sort())
  t.match(key, { ...wanted, id: /^apk_/, last_used_at: null, revoked_at: null })
  t.match(plain_key, /^lk_[0-9A-Za-z]{38}$/)
  t.equal(key.key_prefix, plain_key.slice(0, 10))
  t.equal(created.headers.get('location'), `/admin/keys/${key.id}`)
  t.equal(created.headers.get('cache-control'), 'no-store')
  t.equal(await verify(other, plain_key), 200)
  const read = (await admin('GET', `keys/${key.id}`)).body
  t.strictSame({ ...read, last_used_at: null }, key)
  const listed = await admin('GET', `keys?user_id=${user.id}`)
  t.same(Object.keys(listed.body.data[0]).sort(), [...members].sort(), 'no secret')
  const usual = (await admin('POST', 'keys', { user_id: user.id, name: 'x' })).body
  t.match(usual, { rate_limit_rpm: 1000, expires_at: null })
})

t.test('a key and a list show a use that is not stored yet', async (t) => {
  const { id, token } = await aKey()
  t.equal((await admin('GET', `keys/${id}`)).body.last_used_at, null)
  await verify(instance, token)
  const { last_used_at, key_prefix } = (await admin('GET', `keys/${id}`)).body
  t.ok(Math.abs(last_used_at - nowS()) <= 5)
  t.match((await admin('GET', `keys?key_prefix=${key_prefix}`)).body.data, [{ id, last_used_at }])
})

t.test('a change and a revocation by an operator show a use that is not stored yet', async (t) => {
  for (const [method, body] of [['PATCH', { name: 'used' }], ['DELETE']] as const) {
    const { id, token } = await aKey()
    await verify(instance, token)
    t.ok(Math.abs((await admin(method, `keys/${id}`, body)).body.last_used_at - nowS()) <= 5, method)
  }
})

t.test('a changed limit holds on every instance when the answer comes', async (t) => {
  const { id, token, userId } = await aKey({ expiresAt: nowS() + 600 })
  t.equal(await verify(other, token), 200)
  const changed = await admin('PATCH', `keys/${id}`, { rate_limit_rpm: 5, expires_at: null })
  const { headers } = await other.ask('GET', '/v1/verify', { token })
  t.equal(headers.get('x-ratelimit-limit'), '5')
  t.match(changed.body, { id, name: 'a key', rate_limit_rpm: 5, expires_at: null, user_id: userId })
  t.equal((await admin('PATCH', `keys/${id}`, { name: 'new' })).body.name, 'new')
})

t.test('a revoked key is refused on every instance when the answer comes', async (t) => {
  const { id, token } = await aKey()
  t.equal(await verify(other, token), 200)
  const revoked = await admin('DELETE', `keys/${id}`)
  t.equal(await verify(other, token), 401)
  t.ok(Math.abs(revoked.body.revoked_at - nowS()) <= 5)
  const { body } = await admin('DELETE', `keys/${id}`)
  // The other instance may store the last use in between.
  t.strictSame(body, { ...revoked.body, last_used_at: body.last_used_at }, 'again')
})

t.test(
  'a rotated key is refused on every instance when the answer comes, and its successor works',
  async (t) => {
    const { token, userId, ...old } = await aKey({ rateLimitRpm: 7, expiresAt: nowS() + 600 })
    t.equal(await verify(other, token), 200)
    const rotated = await admin('POST', `keys/${old.id}/rotate`)
    t.equal(await verify(other, token), 401)
    t.equal(rotated.status, 201)
    const { plain_key, ...successor } = rotated.body
    const { id, key_prefix, created_at, last_used_at } = successor
    t.strictSame(successor, { ...old, user_id: userId, id, key_prefix, created_at, last_used_at })
    t.equal(last_used_at, null)
    t.equal(await verify(other, plain_key), 200)
    t.equal(rotated.headers.get('location'), `/admin/keys/${id}`)
    const entry = {
      event: 'key.rotated',
      actor: 'operator:ada',
      key_id: old.id,
      details: { successor_id: id },
    }
    t.match([...(await entriesOf(rotated))], [entry])
    expectError(t, await admin('POST', `keys/${old.id}/rotate`), 'key_already_rotated')
    const grace = await admin('POST', `keys/${id}/rotate`, { expires_in: 60 })
    t.equal(grace.status, 201)
    t.equal(await verify(instance, plain_key), 200, 'within the grace period')
  },
)

t.test('every act on a key is in the audit log once, under the name of its operator', async (t) => {
  const created = await admin('POST', 'keys', { user_id: user.id, name: 'audited' }, { token: bob })
  const { id, plain_key } = created.body
  const changed = await admin('PATCH', `keys/${id}`, { rate_limit_rpm: 9 })
  const revoked = await admin('DELETE', `keys/${id}`)
  const expected = [
    [created, { event: 'key.created', actor: 'operator:bob', details: { name: 'audited' } }],
    [changed, { event: 'key.updated', actor: 'operator:ada', details: { rate_limit_rpm: 9 } }],
    [revoked, { event: 'key.revoked', actor: 'operator:ada', path: `/admin/keys/${id}` }],
  ] as const
  for (const [answer, entry] of expected) {
    const entries = await entriesOf(answer)
    t.match([...entries], [{ ...entry, key_id: id, user_id: user.id, reason: null, ip: '127.0.0.1' }])
    t.equal(entries.length, 1)
    t.notMatch(JSON.stringify(entries), plain_key)
  }
  for (const idle of [await admin('DELETE', `keys/${id}`), await admin('PATCH', `keys/${id}`, { name: 'x' })])
    t.strictSame([...(await entriesOf(idle))], [], 'what changes nothing leaves none')
})

t.test('the owner must be there, and have room for one more', async (t) => {
  const create = (userId: string) => admin('POST', 'keys', { user_id: userId, name: 'x' })
  for (const absent of ['usr_nobody', '', 'a\u0000b', 'x'.repeat(300)])
    expectError(t, await create(absent), 'not_found', 'user_id')
  const full = await makeUser(instance)
  for (let n = 0; n < 8; n++) await makeKey(instance, { userId: full.id })
  expectError(t, await create(full.id), 'key_limit_reached')
  const deleted = await makeUser(instance)
  await deleteUser(instance, deleted.id)
  expectError(t, await create(deleted.id), 'not_found', 'user_id')
})

t.test('a key that is not active cannot be changed', async (t) => {
  const expired = await aKey({ expiresAt: nowS() - 5 })
  const revoked = await aKey()
  await admin('DELETE', `keys/${revoked.id}`)
  for (const { id } of [expired, revoked])
    for (const [method, path] of [
      ['PATCH', ''],
      ['POST', '/rotate'],
    ] as const)
      expectError(
        t,
        await admin(method, `keys/${id}${path}`, method === 'PATCH' ? { name: 'x' } : {}),
        'key_not_active',
        'id',
      )
})

t.test('a key whose owner is deleted is not rotated, and the answer says why', async (t) => {
  const owner = await makeUser(instance)
  const expired = await makeKey(instance, { userId: owner.id, expiresAt: nowS() - 5 })
  const { id } = await makeKey(instance, { userId: owner.id })
  await deleteUser(instance, owner.id)
  const refused = await admin('POST', `keys/${id}/rotate`)
  expectError(t, refused, 'key_not_active', 'id')
  t.match(refused.body.error, { message: /owner .* is deleted/, suggestion: /POST \/admin\/users/ })
  t.match((await admin('POST', `keys/${expired.id}/rotate`)).body.error.message, /revoked or expired/)
})

const key = instance.service.stores.tokenFormat.mint()
const good = { user_id: user.id, name: 'x' }
const refused: [method: string, path: string, body: unknown, code: Code, param: string][] = [
  ['POST', 'keys', { name: 'x' }, 'missing_parameter', 'user_id'],
  ['POST', 'keys', { user_id: user.id }, 'missing_parameter', 'name'],
  ['POST', 'keys', { ...good, user_id: 5 }, 'invalid_parameter', 'user_id'],
  ['POST', 'keys', { ...good, userId: user.id }, 'unknown_parameter', 'userId'],
  ['POST', 'keys', { ...good, plain_key: key }, 'unknown_parameter', 'plain_key'],
  ['PATCH', 'keys/apk_1', {}, 'missing_parameter', ''],
  ['PATCH', 'keys/apk_1', { user_id: user.id }, 'unknown_parameter', 'user_id'],
  ['POST', 'keys/apk_1/rotate', { expires_in: -1 }, 'invalid_parameter', 'expires_in'],
  ['POST', 'keys/apk_1/rotate', { expires_at: 5 }, 'unknown_parameter', 'expires_at'],
  ['POST', 'keys/apk_1/rotate?expires_in=5', undefined, 'unknown_parameter', 'expires_in'],
  ['GET', 'keys?limit=101', undefined, 'invalid_parameter', 'limit'],
  ['GET', 'keys?status=gone', undefined, 'invalid_parameter', 'status'],
  ...['usr_nobody', 'apk_1', 'usr_%00', ''].map((id): (typeof refused)[number] => [
    'GET',
    `keys?user_id=${id}`,
    undefined,
    'not_found',
    'user_id',
  ]),
  ['GET', 'keys?user_id=usr_1&user_id=usr_2', undefined, 'invalid_parameter', 'user_id'],
  ['GET', `keys?key_prefix=${key}`, undefined, 'invalid_parameter', 'key_prefix'],
  ['GET', 'keys?key_prefix=lk_Wg0', undefined, 'invalid_parameter', 'key_prefix'],
  ['GET', 'keys?key_prefix=lk_Wg0Wg0Wg', undefined, 'invalid_parameter', 'key_prefix'],
  ['GET', 'keys?key_prefix=lk_%2525', undefined, 'invalid_parameter', 'key_prefix'],
  ['GET', 'keys?name=x', undefined, 'unknown_parameter', 'name'],
  ['GET', 'keys?starting_after=apk_nobody', undefined, 'not_found', 'starting_after'],
  ['GET', `keys?user_id=usr_nobody&starting_after=apk_nobody`, undefined, 'not_found', 'starting_after'],
  ['GET', `keys?user_id=usr_nobody&status=active`, undefined, 'not_found', 'user_id'],
]
for (const name of ['', ' ', 'a\nb', 'x'.repeat(256), 5, null, `of ${key}`]) {
  refused.push(['POST', 'keys', { ...good, name }, 'invalid_parameter', 'name'])
  refused.push(['PATCH', 'keys/apk_1', { name }, 'invalid_parameter', 'name'])
}
for (const rate_limit_rpm of [0, -1, 1.5, '5', null, 1_000_000_001])
  refused.push(['POST', 'keys', { ...good, rate_limit_rpm }, 'invalid_parameter', 'rate_limit_rpm'])
for (const expires_at of [0, 1, nowS(), '2030', 4_102_444_800, 1.5]) {
  refused.push(['POST', 'keys', { ...good, expires_at }, 'invalid_parameter', 'expires_at'])
  refused.push(['PATCH', 'keys/apk_1', { expires_at }, 'invalid_parameter', 'expires_at'])
}
t.test('an invalid value is refused and named, and creates nothing', async (t) => {
  const count = async () => (await sql`select from api_keys`).length
  const before = await count()
  for (const [method, path, body, code, param] of refused) {
    t.comment(method, path, JSON.stringify(body)?.slice(0, 60))
    expectError(t, await admin(method, path, body), code, param)
  }
  t.equal(await count(), before)
})

t.test('the longest KEY_PREFIX can be asked for', async (t) => {
  const { displayPrefixOf, mint } = tokenFormat('x'.repeat(16))
  t.match(displayPrefixOf(mint()), new RegExp(AdminListKeysQuery.properties.key_prefix.pattern!))
})

t.test('an absent key is the same 404 for every route', async (t) => {
  for (const id of ['apk_nobody', user.id, '%00', key, 'x'.repeat(5000)]) {
    for (const [method, body] of [['GET'], ['PATCH', { name: 'x' }], ['DELETE']] as const)
      expectError(t, await admin(method, `keys/${id}`, body), 'not_found', 'id')
    expectError(t, await admin('POST', `keys/${id}/rotate`), 'not_found', 'id')
  }
})

t.test('the list is of all users, newest first, and narrowed by what is asked for', async (t) => {
  const [owner, keyless] = [await makeUser(instance), await makeUser(instance)]
  const own = (more: object = {}) => makeKey(instance, { userId: owner.id, ...more })
  const [active, expired, revoked, strangers] = [
    await own(),
    await own({ expiresAt: nowS() - 5 }),
    await own(),
    await aKey(),
  ]
  await admin('DELETE', `keys/${revoked.id}`)
  const ids = async (query: string) => {
    const { status, body } = await admin('GET', `keys${query}`)
    t.equal(status, 200, query)
    return body.data.map(({ id }: { id: string }) => id)
  }
  t.strictSame((await ids('')).slice(0, 4), [strangers.id, revoked.id, expired.id, active.id])
  t.strictSame(await ids(`?user_id=${owner.id}`), [revoked.id, expired.id, active.id])
  t.strictSame(await ids(`?user_id=${owner.id}&status=expired`), [expired.id])
  t.strictSame((await ids('?status=revoked'))[0], revoked.id)
  t.notOk((await ids('?status=active')).some((id: string) => id === revoked.id || id === expired.id))
  t.strictSame(await ids(`?key_prefix=${active.key_prefix}`), [active.id])
  t.strictSame(await ids(`?key_prefix=${active.key_prefix}&user_id=${strangers.userId}`), [])
  t.strictSame(await ids(`?user_id=${keyless.id}`), [])

  const walked: string[] = []
  for (let cursor: string | null = ''; cursor !== null; ) {
    const { body } = await admin(
      'GET',
      `keys?user_id=${owner.id}&limit=2${cursor && `&starting_after=${cursor}`}`,
    )
    walked.push(...body.data.map(({ id }: { id: string }) => id))
    t.equal(body.has_more, body.next_cursor !== null)
    cursor = body.next_cursor
  }
  t.strictSame(walked, [revoked.id, expired.id, active.id])
  const { body } = await admin('GET', `keys?starting_after=${revoked.id}&limit=1`)
  t.match(body, { data: [{ id: expired.id }], has_more: true, next_cursor: expired.id })
})
