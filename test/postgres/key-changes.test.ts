// Changes of keys in Postgres: each with its audit entry or not at all, decided by what holds at
// the commit, and published.
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { createPool, type Pool } from '../../src/postgres/pool.ts'
import { newId } from '../../src/rules/id.ts'
import { type Actor, Unavailable } from '../../src/stores.ts'
import { until } from '../process/until.ts'
import { startTcpProxy } from '../services/index.ts'
import { actor, newKeyOf, nowS, openStores, storesOn } from './open-stores.ts'

const stores = await openStores(t)
const { url, keys, users, audit, sql, published, keysWithLimit, makeUser, makeKey, whileUncommitted } = stores

const absence = { ok: false, reason: 'absent' }
const absentIds = () => [newId('apk_'), '', 'apk_\0']
const countOf = async (userId: string) => (await keys.list(userId, { limit: 100 }))!.length

t.test('a change raises the version and changes what it names only', async (t) => {
  const user = await makeUser()
  const { hash, token, ...stored } = await makeKey(user.id, { expiresAt: 2_000_000_000 })
  const changed = await keys.change(stored.id, user.id, { rateLimitRpm: 7 }, actor())
  t.strictSame(changed, { ok: true, key: { ...stored, rateLimitRpm: 7, version: 2 } })
  const key = { ...stored, rateLimitRpm: 7, version: 3, expiresAt: null, name: 'new' }
  const cleared = await keys.change(stored.id, user.id, { expiresAt: null, name: 'new' }, actor())
  t.strictSame(cleared, { ok: true, key })
  t.strictSame(await keys.get(stored.id, user.id), key)
})

t.test('a revoked and an expired key are not changed, and a stranger sees neither', async (t) => {
  const [user, stranger] = [await makeUser(), await makeUser()]
  const revoked = await makeKey(user.id)
  await keys.revoke(revoked.id, user.id, actor())
  const expired = await makeKey(user.id, { expiresAt: nowS() - 1 })
  for (const { id } of [revoked, expired]) {
    const before = await keys.get(id, user.id)
    t.strictSame(await keys.change(id, user.id, { name: 'x' }, actor()), { ok: false, reason: 'not_active' })
    t.strictSame(await keys.change(id, stranger.id, { name: 'x' }, actor()), absence)
    t.strictSame(await keys.get(id, user.id), before)
  }
  for (const id of absentIds()) t.strictSame(await keys.change(id, user.id, { name: 'x' }, actor()), absence)
})

t.test('a key that expires while its change waits for a lock is not changed', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  const changed = await whileUncommitted(
    (tx) => tx`select from api_keys where id = ${id} for update`,
    () => keys.change(id, user.id, { expiresAt: null }, actor()),
    (tx) => tx`update api_keys set expires_at = clock_timestamp() where id = ${id}`,
  )
  t.strictSame(changed, { ok: false, reason: 'not_active' })
})

t.test('an expiry that passes while its change waits for a lock is refused', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  const expiresAt = nowS() + 2
  const changed = await whileUncommitted(
    (tx) => tx`select from api_keys where id = ${id} for update`,
    () => keys.change(id, user.id, { expiresAt }, actor()),
    (tx) => tx`select pg_sleep_until(to_timestamp(${expiresAt}))`,
  )
  t.match(changed, { ok: false, reason: 'expires_in_past' })
})

t.test('keys that change each other at the same time do not block each other', async (t) => {
  const user = await makeUser()
  const [a, b] = [await makeKey(user.id), await makeKey(user.id)]
  const change = (one: { id: string }, by: { id: string }) =>
    keys.change(one.id, user.id, { name: 'x' }, actor(by.id))
  for (let i = 0; i < 20; i++) {
    // Both wait for `a` now, and nobody may hold `b` meanwhile.
    const changed = await whileUncommitted(
      (tx) => tx`select from api_keys where id = ${a.id} for update`,
      () => Promise.all([change(a, b), change(b, a)]),
    )
    t.ok(changed.every(({ ok }) => ok))
  }
})

t.test('a change locks its keys in the order of their ids, as every other change does', async (t) => {
  const user = await makeUser()
  const acts: ((id: string, by: Actor) => Promise<{ ok: boolean }>)[] = [
    (id, by) => keys.change(id, user.id, { name: 'x' }, by),
    (id, by) => keys.revoke(id, user.id, by),
    (id, by) => keys.rotate(id, user.id, { successor: newKeyOf(user.id).key, graceS: 0 }, by),
  ]
  for (const act of acts) {
    const [first, second] = [newKeyOf(user.id).key, newKeyOf(user.id).key]
    // In the table they have the other order.
    for (const key of [second, first]) await keys.create(key, actor())
    const outcome = await whileUncommitted(
      (tx) => tx`select from api_keys where id = ${first.id} for update`,
      () => act(second.id, actor(first.id)),
      (tx) => tx`select from api_keys where id = ${second.id} for update nowait`,
    )
    t.equal(outcome.ok, true)
  }
})

t.test('of revocations at the same time one counts', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  const revoked = await whileUncommitted(
    (tx) => tx`select from api_keys where id = ${id} for update`,
    () => Promise.all([1, 2, 3].map(() => keys.revoke(id, user.id, actor()))),
  )
  for (const one of revoked) t.match(one, { ok: true, key: { version: 2 } })
  t.equal((await audit.list({ keyId: id, event: 'key.revoked', limit: 10 })).length, 1)
})

t.test('a key revoked again keeps its time and its version', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  const first = await keys.revoke(id, user.id, actor())
  if (!first.ok) return t.fail(first.reason)
  t.match(first.key, { id, version: 2, revokedAt: Number })
  await sql`update api_keys set revoked_at = revoked_at - interval '1 hour' where id = ${id}`
  const again = await keys.revoke(id, user.id, actor())
  t.strictSame(again, { ok: true, key: { ...first.key, revokedAt: first.key.revokedAt! - 3600 } })
  t.strictSame(await keys.revoke(id, null, actor()), again)
})

t.test('a key, also an expired one, is revoked by its owner or by the operator', async (t) => {
  const [user, stranger] = [await makeUser(), await makeUser()]
  const { id } = await makeKey(user.id)
  const expired = await makeKey(user.id, { expiresAt: nowS() - 1 })
  t.strictSame(await keys.revoke(id, stranger.id, actor()), absence)
  t.equal((await keys.get(id, user.id))!.revokedAt, null)
  t.match(await keys.revoke(id, null, actor()), { ok: true, key: { id, revokedAt: Number } })
  t.match(await keys.revoke(expired.id, user.id, actor()), { ok: true, key: { revokedAt: Number } })
  for (const absent of absentIds()) t.strictSame(await keys.revoke(absent, null, actor()), absence)
})

t.test('a change that waited for another one is listed after it', async (t) => {
  const { id: userId } = await makeUser()
  const { id } = await makeKey(userId)
  const waits = async (event: string, change: (by: Actor) => Promise<unknown>) => {
    const by = actor()
    let earlierMs = Infinity
    await whileUncommitted(
      (tx) => tx`select from users u join api_keys k on k.user_id = u.id where k.id = ${id} for update`,
      () => change(by),
      async (tx) => {
        const [now] = await tx`select floor(1000 * extract(epoch from clock_timestamp()))::float8 as ms`
        earlierMs = now!.ms
      },
    )
    const [entry] = await audit.find(by.requestId)
    t.equal(entry!.event, event)
    t.ok(Date.parse(entry!.occurred_at) >= earlierMs, event)
  }
  const { key: successor } = newKeyOf(userId)
  await waits('key.created', (by) => keys.create(newKeyOf(userId).key, by))
  await waits('key.updated', (by) => keys.change(id, userId, { name: 'new' }, by))
  await waits('key.rotated', (by) => keys.rotate(id, userId, { successor, graceS: 60 }, by))
  await waits('key.revoked', (by) => keys.revoke(id, userId, by))
  await waits('user.updated', (by) => users.change(userId, { name: 'new' }, by))
  await waits('user.keys_revoked', (by) => users.revokeKeys(userId, by))
  await waits('user.deleted', (by) => users.remove(userId, by))
})

t.test('each change leaves one audit entry, and what changes nothing leaves none', async (t) => {
  const user = await makeUser()
  const caller = await makeKey(user.id)
  const { token, key } = newKeyOf(user.id, { name: 'audited' })
  const [creating, changing, clearing, revoking, idle] = [1, 2, 3, 4, 5].map(() => actor(caller.id))
  await keys.create(key, creating!)
  await keys.change(key.id, user.id, { rateLimitRpm: 5 }, changing!)
  await keys.change(key.id, user.id, { expiresAt: null }, clearing!)
  await keys.revoke(key.id, user.id, revoking!)
  await keys.revoke(key.id, user.id, idle!)
  await keys.change(key.id, user.id, { rateLimitRpm: 6 }, idle!)

  const expected = {
    reason: null,
    key_id: key.id,
    user_id: user.id,
    actor: `key:${caller.id}`,
    ip: '192.0.2.1',
    user_agent: 'test',
  }
  const [created, changed, cleared, revoked, none] = await Promise.all(
    [creating, changing, clearing, revoking, idle].map((one) => audit.find(one!.requestId)),
  )
  t.match(created, [{ ...expected, event: 'key.created' }])
  t.strictSame(created![0]!.details, { name: 'audited', rate_limit_rpm: 1000, expires_at: null })
  t.match(changed, [{ ...expected, event: 'key.updated', details: { rate_limit_rpm: 5 } }])
  t.strictSame(changed![0]!.details, { rate_limit_rpm: 5 })
  t.strictSame(cleared![0]!.details, { expires_at: null })
  t.match(revoked, [{ ...expected, event: 'key.revoked', method: 'POST', path: '/v1/keys' }])
  t.strictSame(none, [])
  const all = JSON.stringify([created, changed, revoked])
  t.notOk(all.includes(token.slice(0, 11)) || all.includes(key.hash.toString('hex')), 'no secret in them')
})

t.test('a change whose audit entry is refused is not made', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  await sql`alter table audit_log add constraint this_request_is_refused check (request_id <> 'req_refused') not valid`
  const { key } = newKeyOf(user.id)
  const refused = { code: '23514' }
  const unrecorded = { ...actor(), requestId: 'req_refused' }
  await t.rejects(keys.create(key, unrecorded), refused)
  await t.rejects(keys.change(id, user.id, { name: 'x' }, unrecorded), refused)
  await t.rejects(keys.revoke(id, user.id, unrecorded), refused)
  await t.rejects(
    keys.rotate(id, user.id, { successor: newKeyOf(user.id).key, graceS: 0 }, unrecorded),
    refused,
  )
  const absent = newId('usr_')
  await t.rejects(users.create({ id: absent, name: 'x' }, unrecorded), refused)
  await t.rejects(users.change(user.id, { name: 'x' }, unrecorded), refused)
  await t.rejects(users.revokeKeys(user.id, unrecorded), refused)
  await t.rejects(users.remove(user.id, unrecorded), refused)
  t.strictSame([await users.get(absent), await users.get(user.id)], [null, user])
  t.equal(await keys.get(key.id, user.id), null)
  t.match(await keys.get(id, user.id), { version: 1, name: 'a key', revokedAt: null })
})

t.test('of creations at once exactly as many succeed as there is room for', async (t) => {
  const user = await makeUser()
  const limited = keysWithLimit(5)
  const created = await Promise.all(
    Array.from({ length: 12 }, () => limited.create(newKeyOf(user.id).key, actor())),
  )
  t.equal(created.filter(({ ok }) => ok).length, 5)
  t.ok(created.every((one) => one.ok || one.reason === 'limit_reached'))
  t.equal(await countOf(user.id), 5)
})

t.test('revoked and expired keys leave room for others', async (t) => {
  const user = await makeUser()
  const limited = keysWithLimit(2)
  await makeKey(user.id, { expiresAt: nowS() - 1 })
  const revoked = await makeKey(user.id)
  await keys.revoke(revoked.id, null, actor())
  const outcomes = []
  for (let n = 0; n < 3; n++) {
    const created = await limited.create(newKeyOf(user.id).key, actor())
    outcomes.push(created.ok || created.reason)
  }
  t.strictSame(outcomes, [true, true, 'limit_reached'])
})

t.test('a key that has become unusable creates no other', async (t) => {
  const user = await makeUser()
  const [revoked, expired, ownerless] = [
    // Both: the reasons have an order.
    await makeKey(user.id, { expiresAt: nowS() - 1 }),
    await makeKey(user.id, { expiresAt: nowS() - 1 }),
    await makeKey(user.id),
  ]
  const outcome = async (keyId: string) => keys.create(newKeyOf(user.id).key, actor(keyId))
  const refused = (denial: string) => ({ ok: false, reason: 'caller_unusable', denial })
  await keys.revoke(revoked.id, null, actor())
  t.strictSame(await outcome(revoked.id), refused('revoked'))
  t.strictSame(await outcome(expired.id), refused('expired'))
  t.strictSame(await outcome(newId('apk_')), refused('unknown_key'))
  await users.remove(user.id, actor())
  t.strictSame(await outcome(ownerless.id), refused('owner_deleted'))
  t.equal(await countOf(user.id), 3)
})

t.test('a key revoked or expired while it creates another creates nothing', async (t) => {
  const user = await makeUser()
  for (const [end, denial] of [
    ['revoked_at', 'revoked'],
    ['expires_at', 'expired'],
  ] as const) {
    const caller = await makeKey(user.id)
    const { key } = newKeyOf(user.id)
    const created = await whileUncommitted(
      (tx) => tx`select from api_keys where id = ${caller.id} for update`,
      () => keys.create(key, actor(caller.id)),
      (tx) => tx`update api_keys set ${sql(end)} = clock_timestamp() where id = ${caller.id}`,
    )
    t.strictSame(created, { ok: false, reason: 'caller_unusable', denial })
    t.equal(await keys.get(key.id, user.id), null)
  }
})

t.test('a key revoked while it revokes another, or itself, revokes nothing', async (t) => {
  const user = await makeUser()
  const other = await makeKey(user.id)
  for (const id of [other.id, null]) {
    const caller = await makeKey(user.id)
    const revoked = await whileUncommitted(
      (tx) => tx`update api_keys set revoked_at = now() where id = ${caller.id}`,
      () => keys.revoke(id ?? caller.id, user.id, actor(caller.id)),
    )
    t.strictSame(revoked, { ok: false, reason: 'caller_unusable', denial: 'revoked' })
  }
  t.equal((await keys.get(other.id, user.id))!.revokedAt, null)
})

t.test('a user deleted while a key is created for it gets none', async (t) => {
  const user = await makeUser()
  const created = await whileUncommitted(
    (tx) => tx`update users set deleted_at = now() where id = ${user.id}`,
    () => keys.create(newKeyOf(user.id).key, actor()),
  )
  t.strictSame(created, { ok: false, reason: 'no_such_user' })
})

t.test('what cannot be stored is a fault of ours and not of the server', async (t) => {
  const user = await makeUser()
  const rejected = await keys.create(newKeyOf(user.id, { name: 'a\0b' }).key, actor()).catch((error) => error)
  t.type(rejected, Error)
  t.notOk(rejected instanceof Unavailable)
})

/** Stores on one connection of their own. */
function openOne(t: Test, { url: at = url, timeoutMs = 10_000, publishing = Promise.resolve() } = {}) {
  const pool = createPool({ url: at, purpose: 'publication', max: 1, timeoutMs })
  t.teardown(() => pool.close())
  return { pool, ...storesOn(pool, { publishing }) }
}

t.test('a change and a revocation are answered once they are published', async (t) => {
  const { id, userId } = await makeKey((await makeUser()).id)
  const changes: [name: string, version: number, change: (own: typeof keys) => Promise<unknown>][] = [
    ['change', 2, (own) => own.change(id, userId, { rateLimitRpm: 7 }, actor())],
    ['revocation', 3, (own) => own.revoke(id, userId, actor())],
    ['revocation of a revoked key', 3, (own) => own.revoke(id, null, actor())],
  ]
  for (const [name, version, change] of changes) {
    let publish = () => {}
    const publishing = new Promise<void>((resolve) => {
      publish = resolve
    })
    const { pool, keys, published } = openOne(t, { publishing })
    let answered = false
    const answer = change(keys).finally(() => {
      answered = true
    })
    await until('the change is published', () => published.length > 0)
    await pool.run((sql) => sql`select 1`)
    t.equal(answered, false, `${name}: not before, and its connection is free meanwhile`)
    publish()
    t.match(await answer, { ok: true, key: { id } })
    t.strictSame(published, [{ keyId: id, version }])
  }
})

t.test('what changes nothing publishes nothing', async (t) => {
  const { id, userId } = await makeKey((await makeUser()).id)
  published.length = 0
  await keys.change('apk_0', userId, { name: 'x' }, actor())
  t.match(await keys.change(id, userId, { expiresAt: 1 }, actor()), { reason: 'expires_in_past' })
  await keys.revoke('apk_0', userId, actor())
  await keys.create(newKeyOf(userId).key, actor())
  t.strictSame(published, [])
})

t.test('a change that commits after the deadline is published', async (t) => {
  const { id, userId } = await makeKey((await makeUser()).id)
  const { pool, keys, published } = openOne(t, { timeoutMs: 3000 })
  await sql.begin(async (tx) => {
    await tx`select from api_keys where id = ${id} for update`
    // The change starts when most of its time is over, so that its own statement's time ends after
    // it.
    const busy = pool.run((sql) => sql`select pg_sleep(2)`)
    const answer = keys.revoke(id, userId, actor()).catch((error) => error)
    await busy
    t.match(await answer, { statusCode: 503 })
    t.strictSame(published, [])
  })
  await until('the change is published', () => published.length > 0)
  t.strictSame(published, [{ keyId: id, version: 2 }])
})

t.test('a change whose answer arrives after the deadline is published', async (t) => {
  const { id, userId } = await makeKey((await makeUser()).id)
  const proxy = await startTcpProxy(t, url)
  const { keys, published } = openOne(t, { url: proxy.url, timeoutMs: 1000 })
  // Prepares the statement: one round trip is left.
  t.match(await keys.revoke('apk_0', userId, actor()), { ok: false })
  proxy.delay(1300)
  t.match(await keys.revoke(id, userId, actor()).catch((error) => error), { statusCode: 503 })
  await until('the change is published', () => published.length > 0)
  t.strictSame(published, [{ keyId: id, version: 2 }])
})

t.test('a change waits in the lane of its operator, or of the user whose key it is', async (t) => {
  const lanes: (string | undefined)[] = []
  const pool = { change: async (_work, lane) => void lanes.push(lane) } as Partial<Pool> as Pool
  const { keys } = storesOn(pool)
  for (const by of [actor(), actor('apk_1')]) {
    await keys.create(newKeyOf('usr_1').key, by)
    await keys.change('apk_1', 'usr_1', { name: 'x' }, by)
    await keys.rotate('apk_1', 'usr_1', { successor: newKeyOf('').key, graceS: 0 }, by)
    await keys.revoke('apk_1', 'usr_1', by)
  }
  t.strictSame(lanes, [...Array(4).fill('operator:ada'), ...Array(4).fill('usr_1')])
})

t.test('a change that is not confirmed after its request timed out ends no process', async (t) => {
  const { id, userId } = await makeKey((await makeUser()).id)
  let fail = (_error: Error) => {}
  const publishing = new Promise<void>((_, reject) => {
    fail = reject
  })
  const pool = {
    async change(work: (sql: never) => Promise<unknown>) {
      await stores.pool.change(work as never)
      throw new Unavailable('late')
    },
  } as unknown as Pool
  const { keys, published } = storesOn(pool, { publishing })
  await t.rejects(keys.revoke(id, userId, actor()), new Unavailable('late'))
  t.strictSame(published, [{ keyId: id, version: 2 }])
  const unhandled: unknown[] = []
  const note = (reason: unknown) => unhandled.push(reason)
  process.on('unhandledRejection', note)
  t.teardown(() => process.off('unhandledRejection', note))
  fail(new Error('not confirmed'))
  for (let turn = 0; turn < 3; turn++) await nextTurn()
  t.strictSame(unhandled, [])
})
