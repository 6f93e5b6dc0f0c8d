// Rotation in Postgres: a successor that is no more than the key was, once, in one statement, and published.
import t from 'tap'
import { newId } from '../../src/rules/id.ts'
import { actor, newKeyOf, nowS, openStores } from './open-stores.ts'

const { keys, users, audit, sql, published, keysWithLimit, makeUser, makeKey, whileUncommitted } =
  await openStores(t)

const rotate = (id: string, userId: string | null, graceS = 0, by = actor(), store = keys) =>
  store.rotate(id, userId, { successor: newKeyOf('').key, graceS }, by)
const databaseS = async () => (await sql`select extract(epoch from now())::float8 as now`)[0]!.now

t.test('the successor is what the key was, under another hash, and the key is revoked', async (t) => {
  const user = await makeUser()
  const { hash, token, ...old } = await makeKey(user.id, { name: 'nightly', expiresAt: nowS() + 3600 })
  const { key: successor, token: newToken } = newKeyOf('usr_stranger')
  published.length = 0
  const rotated = await keys.rotate(old.id, user.id, { successor, graceS: 0 }, actor())
  if (!rotated.ok) return t.fail(rotated.reason)
  const { id, displayPrefix, createdAt } = rotated.key
  t.strictSame(rotated.key, { ...old, id: successor.id, displayPrefix: newToken.slice(0, 10), createdAt })
  t.strictSame(await keys.get(id, user.id), rotated.key)
  t.match((await keys.findByHash([successor.hash.toString('hex')])).found, [{ id, version: 1 }])
  t.not(displayPrefix, old.displayPrefix)
  const { revokedAt } = (await keys.get(old.id, user.id))!
  t.ok(Math.abs(revokedAt! - (await databaseS())) < 60, 'at the moment of the rotation')
  t.strictSame(await keys.get(old.id, user.id), { ...old, version: 2, revokedAt, state: 'revoked' })
  t.strictSame(published, [{ keyId: old.id, version: 2 }])
})

t.test('a successor counts as hashed under the secret of today, whatever its predecessor was', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  await sql`update api_keys set hash_secret_id = 'of the previous secret' where id = ${id}`
  const { key: successor } = newKeyOf('')
  t.match(await keys.rotate(id, user.id, { successor, graceS: 600 }, actor()), { ok: true })
  const rows = await sql`select id, hash_secret_id from api_keys where user_id = ${user.id} order by id`
  t.strictSame(
    [...rows],
    [
      { id, hash_secret_id: 'of the previous secret' },
      { id: successor.id, hash_secret_id: successor.hashSecretId },
    ],
  )
})

t.test('with a grace period the key expires after it, but never later than before', async (t) => {
  const user = await makeUser()
  const end = Math.floor(await databaseS()) + 3600
  for (const [before, graceS, expected] of [
    [null, 600, end - 3000],
    [end, 600, end - 3000],
    [end, 86_400, end],
  ] as const) {
    const { id } = await makeKey(user.id, { expiresAt: before })
    const startS = await databaseS()
    const rotated = await rotate(id, user.id, graceS)
    t.match(rotated, { ok: true, key: { expiresAt: before } }, 'the successor ends when the key would have')
    const { expiresAt, revokedAt } = (await keys.get(id, user.id))!
    t.equal(revokedAt, null)
    t.ok(Math.abs(expiresAt! - expected) < 60, `${expiresAt} is about ${expected}`)
    if (expected !== end) t.ok(expiresAt! >= startS + graceS, 'the whole grace period')
    else t.equal(expiresAt, end)
  }
})

t.test('of rotations at once exactly one succeeds, and none afterwards', async (t) => {
  const user = await makeUser()
  for (const graceS of [0, 600]) {
    const { id } = await makeKey(user.id)
    const all = await Promise.all(Array.from({ length: 8 }, () => rotate(id, user.id, graceS)))
    const [made, ...others] = all.filter(({ ok }) => ok)
    if (!made?.ok) return t.fail('none')
    t.equal(others.length, 0)
    const refused = { ok: false, reason: 'already_rotated', successorId: made.key.id }
    for (const one of all) if (!one.ok) t.strictSame(one, refused)
    published.length = 0
    t.strictSame(await rotate(id, null, graceS), refused)
    t.strictSame(published, [{ keyId: id, version: 2 }], 'again: the first response may have been a 503')
    t.equal((await rotate(made.key.id, user.id)).ok, true, 'but the successor is rotated in turn')
  }
  t.equal((await keys.list(user.id, { limit: 100 }))!.length, 6)
})

t.test(
  'a key that is absent or not active is not rotated, and nothing is changed or published',
  async (t) => {
    const [user, stranger, gone] = [await makeUser(), await makeUser(), await makeUser()]
    const revoked = await makeKey(user.id)
    await keys.revoke(revoked.id, user.id, actor())
    const expired = await makeKey(user.id, { expiresAt: nowS() - 1 })
    const ownerless = await makeKey(gone.id)
    await users.remove(gone.id, actor())
    published.length = 0
    const by = actor()
    for (const { id } of [revoked, expired])
      t.strictSame(await rotate(id, null, 600, by), { ok: false, reason: 'not_active' })
    t.strictSame(await rotate(ownerless.id, null, 600, by), { ok: false, reason: 'owner_deleted' })
    for (const id of [revoked.id, newId('apk_'), '', 'apk_\0'])
      t.strictSame(await rotate(id, stranger.id, 0, by), { ok: false, reason: 'absent' })
    t.strictSame(await audit.find(by.requestId), [])
    t.strictSame(published, [])
    t.equal((await keys.list(user.id, { limit: 100 }))!.length, 2)
  },
)

t.test('one audit entry links both keys, and is found under either', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id, { expiresAt: nowS() + 86_400 })
  const by = actor(id)
  const rotated = await rotate(id, user.id, 600, by)
  if (!rotated.ok) return t.fail(rotated.reason)
  const successor_id = rotated.key.id
  const { expiresAt: old_key_ends_at } = (await keys.get(id, user.id))!
  const [entry, ...more] = await audit.find(by.requestId)
  t.strictSame(more, [])
  const expected = { event: 'key.rotated', key_id: id, user_id: user.id, actor: `key:${id}` }
  t.match(entry, { ...expected, details: { successor_id, old_key_ends_at } })
  const again = actor()
  const second = await rotate(successor_id, user.id, 0, again)
  if (!second.ok) return t.fail(second.reason)
  const { revokedAt } = (await keys.get(successor_id, user.id))!
  t.match(await audit.find(again.requestId), [{ details: { old_key_ends_at: revokedAt } }])
  const events = async (keyId: string) =>
    (await audit.list({ keyId, limit: 10 })).map(({ event, key_id }) => [event, key_id])
  t.strictSame(await events(id), [
    ['key.rotated', id],
    ['key.created', id],
  ])
  t.strictSame(await events(successor_id), [
    ['key.rotated', successor_id],
    ['key.rotated', id],
  ])
  t.strictSame(await audit.list({ keyId: second.key.id, event: 'key.revoked', limit: 10 }), [])
})

t.test(
  'a user at the limit rotates every key, and no chain of grace periods passes twice the limit',
  async (t) => {
    const user = await makeUser()
    const limited = keysWithLimit(2)
    for (let n = 0; n < 4; n++) await makeKey(user.id, { expiresAt: nowS() - 1 })
    const made = [await makeKey(user.id), await makeKey(user.id)]
    let last = ''
    for (const { id } of made) {
      const rotated = await rotate(id, user.id, 600, actor(), limited)
      if (!rotated.ok) return t.fail(rotated.reason)
      last = rotated.key.id
    }
    t.strictSame(await rotate(last, user.id, 600, actor(), limited), { ok: false, reason: 'limit_reached' })
    t.equal(
      (await rotate(last, user.id, 0, actor(), limited)).ok,
      true,
      'without a grace period there is room',
    )
  },
)

t.test('a key that is revoked meanwhile is not rotated', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  const rotated = await whileUncommitted(
    (tx) => tx`update api_keys set revoked_at = now(), version = version + 1 where id = ${id}`,
    () => rotate(id, user.id, 0),
  )
  t.strictSame(rotated, { ok: false, reason: 'not_active' })
})

t.test('a key that expires while its rotation waits for a lock is not rotated', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  const rotated = await whileUncommitted(
    (tx) => tx`select from api_keys where id = ${id} for update`,
    () => rotate(id, user.id, 60),
    (tx) => tx`update api_keys set expires_at = clock_timestamp() where id = ${id}`,
  )
  t.strictSame(rotated, { ok: false, reason: 'not_active' })
})

t.test('a key rotates itself, but not once it has been revoked meanwhile', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  const denied = await whileUncommitted(
    (tx) => tx`update api_keys set revoked_at = now() where id = ${id}`,
    () => rotate(id, user.id, 0, actor(id)),
  )
  t.strictSame(denied, { ok: false, reason: 'caller_unusable', denial: 'revoked' })
  const other = await makeKey(user.id)
  t.equal((await rotate(other.id, user.id, 0, actor(other.id))).ok, true)
})

t.test('no successor outlives a deletion of the user or a revocation of all their keys', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  const rotated = await whileUncommitted(
    (tx) => tx`update users set deleted_at = now() where id = ${user.id}`,
    () => rotate(id, user.id, 600),
  )
  t.strictSame(rotated, { ok: false, reason: 'owner_deleted' })
  for (let round = 0; round < 10; round++) {
    const owner = await makeUser()
    const made = await Promise.all([1, 2, 3].map(() => makeKey(owner.id)))
    const rotations = made.map(({ id }) => rotate(id, owner.id, 600))
    await users.revokeKeys(owner.id, actor())
    await Promise.all(rotations)
    t.strictSame(await keys.list(owner.id, { limit: 10, status: 'active' }), [])
  }
})
