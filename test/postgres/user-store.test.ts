// Users in Postgres. Deleting one is soft, and makes every instance read the user's keys again.
import t from 'tap'
import type { Pool } from '../../src/postgres/pool.ts'
import { newId } from '../../src/rules/id.ts'
import { until } from '../process/until.ts'
import { actor, nowS, openStores, storesOn, useOf } from './open-stores.ts'

const { users, keys, audit, sql, published, makeUser, makeKey, whileUncommitted } = await openStores(t)

const ago = (s: number) => sql`now() - make_interval(secs => ${s})`

// First: the only test to see all users.
t.test('a new user is listed with its time, newest first', async (t) => {
  const id = newId('usr_')
  const created = await users.create({ id, name: 'Ada ✓', externalId: 'crm/1 ✓' }, actor())
  const made = created.ok ? created.user : undefined!
  t.strictSame(
    { ...made, created_at: 0 },
    { id, name: 'Ada ✓', external_id: 'crm/1 ✓', created_at: 0, deleted_at: null },
  )
  t.ok(Number.isInteger(made.created_at) && Math.abs(made.created_at - nowS()) <= 5)
  const second = await makeUser()
  t.strictSame(await users.list({ limit: 9 }), [second, made])
  await sql`update users set created_at = date_trunc('hour', created_at) + interval '500 ms' where id = ${id}`
  await sql`update users set created_at = (select created_at - interval '1 ms' from users where id = ${id})
    where id = ${second.id}`
  const listed = (await users.list({ limit: 9 }))!.map((user) => user.id)
  t.strictSame(listed, [id, second.id], 'also within one second')
})

t.test('no user is created twice', async (t) => {
  const { id } = await makeUser()
  await t.rejects(users.create({ id, name: 'other' }, actor()), { code: '23505' })
})

t.test('a deleted user stays listed, with the time of its first deletion', async (t) => {
  const made = await makeUser()
  const removed = (await users.remove(made.id, actor()))!
  t.strictSame(removed, { ...made, deleted_at: removed.deleted_at })
  t.ok(Math.abs(removed.deleted_at! - nowS()) <= 5)
  await sql`update users set deleted_at = ${ago(3600)} where id = ${made.id}`
  const again = (await users.remove(made.id, actor()))!
  t.ok(again.deleted_at! < nowS() - 3000)
  t.strictSame(await users.get(made.id), again)
})

t.test(
  'a deletion raises the version of every key not revoked, and publishes all that may be in use',
  async (t) => {
    const [user, other] = [await makeUser(), await makeUser()]
    const usable = [await makeKey(user.id), await makeKey(user.id)]
    const expired = await makeKey(user.id, { expiresAt: nowS() - 540 })
    const [revoked, longRevoked] = [await makeKey(user.id), await makeKey(user.id)]
    for (const [{ id }, agoS] of [
      [revoked, 540],
      [longRevoked, 660],
    ] as const) {
      await keys.revoke(id, null, actor())
      await sql`update api_keys set revoked_at = ${ago(agoS)} where id = ${id}`
    }
    const strangers = await makeKey(other.id)
    // A user may have any number of these, and no copy of them is used any more.
    const longExpired = await makeKey(user.id, { expiresAt: nowS() - 660 })

    for (const version of [2, 3]) {
      published.length = 0
      await users.remove(user.id, actor())
      // The revocation may not have reached every instance.
      const expected = [...[...usable, expired].map(({ id }) => [id, version]), [revoked.id, 2]]
      t.strictSame(published.map(({ keyId, version }) => [keyId, version]).sort(), expected.sort())
      t.equal((await keys.get(usable[0]!.id, user.id))!.version, version, 'and stores it')
    }
    t.equal((await keys.get(strangers.id, other.id))!.version, 1)
    t.equal((await keys.get(longExpired.id, user.id))!.version, 1)
  },
)

t.test('a revocation of all keys leaves those that expired long ago', async (t) => {
  const user = await makeUser()
  const [usable, expired, longExpired] = [
    await makeKey(user.id),
    await makeKey(user.id, { expiresAt: nowS() - 540 }),
    await makeKey(user.id, { expiresAt: nowS() - 660 }),
  ]
  // The second time too: the first revocation may not have reached every instance.
  for (const revoked of [2, 0]) {
    published.length = 0
    t.equal(await users.revokeKeys(user.id, actor()), revoked)
    t.strictSame(
      published.map(({ keyId, version }) => [keyId, version]).sort(),
      [usable.id, expired.id].sort().map((id) => [id, 2]),
    )
    await sql`update api_keys set revoked_at = ${ago(540)} where user_id = ${user.id} and revoked_at is not null`
  }
  t.match(await keys.get(longExpired.id, user.id), { revokedAt: null, version: 1 })
})

t.test('an absent user is null, and nothing is published', async (t) => {
  published.length = 0
  for (const id of [newId('usr_'), 'usr_0', '']) t.equal(await users.remove(id, actor()), null)
  t.strictSame(published, [])
})

t.test('creation and deletion leave one audit entry each, and a second deletion leaves none', async (t) => {
  const [creating, deleting, again] = [actor(), actor(), actor()]
  const id = newId('usr_')
  await users.create({ id, name: 'audited' }, creating)
  for (const more of [{}, {}, { expiresAt: nowS() - 1 }]) await makeKey(id, more)
  await keys.revoke((await makeKey(id)).id, null, actor())
  await users.remove(id, deleting)
  await users.remove(id, again)
  t.match(await audit.find(creating.requestId), [{ event: 'user.created', user_id: id, key_id: null }])
  t.match(await audit.find(deleting.requestId), [
    { event: 'user.deleted', user_id: id, key_id: null, details: { usable_keys: 2 } },
  ])
  t.strictSame(await audit.find(again.requestId), [])
})

t.test('a deletion or a revocation that waits for a creation includes the new key', async (t) => {
  for (const act of [users.remove, users.revokeKeys]) {
    const user = await makeUser()
    const made = await makeKey((await makeUser()).id)
    published.length = 0
    await whileUncommitted(
      (tx) => tx`select from users where id = ${user.id} for update`,
      async () => void (await act(user.id, actor())),
      (tx) => tx`update api_keys set user_id = ${user.id} where id = ${made.id}`,
    )
    t.strictSame(published, [{ keyId: made.id, version: 2 }])
  }
})

t.test('all keys of a user change although their last uses are being written', async (t) => {
  const user = await makeUser()
  const make = (ids: string[], userId: string) => sql`
    insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix)
    select id, ${userId}, 'a key', sha256(id::bytea), 'x', 'lk_1234567' from unnest(${ids}::text[]) id`
  // In the table in another order than by id, as keys are once they are used.
  const [first, second, third] = ['apk_1', 'apk_2', 'apk_3'] as const
  await make([third, first, second], user.id)
  // So many others that Postgres looks the few up by their ids, in the order given.
  const others = Array.from({ length: 30_000 }, (_, n) => `apk_other_${n}`)
  await make(others, (await makeUser()).id)
  await sql`analyze api_keys`
  const waiting = async (count: number) => {
    const [row] = await sql`select count(*)::int as n from pg_stat_activity
      where cardinality(pg_blocking_pids(pid)) > 0 and datname = current_database()`
    return row!.n === count
  }
  for (const act of [users.remove, users.revokeKeys]) {
    let work: Promise<unknown>[] = []
    await sql.begin(async (tx) => {
      await tx`select from api_keys where id = ${second} for update`
      const touching = keys.touch([third, second, first].map((id) => useOf(id)))
      await until('the uses wait', () => waiting(1))
      const changing = act(user.id, actor())
      await until('the change waits', () => waiting(2))
      work = [touching, changing].map((one) => one.then(() => 'done', String))
    })
    t.strictSame(await Promise.all(work), ['done', 'done'], 'no deadlock')
    await sql`update api_keys set last_used_at = null where user_id = ${user.id}`
  }
})

t.test('a change waits in the lane of its operator, and leaves a connection for reads', async (t) => {
  const lanes: (string | undefined)[] = []
  const pool = { change: async (_work, lane) => void lanes.push(lane) } as Partial<Pool> as Pool
  const { users } = storesOn(pool)
  await users.create({ id: newId('usr_'), name: 'Ada' }, actor())
  await users.change(newId('usr_'), { name: 'Ada' }, actor())
  t.strictSame(lanes, ['operator:ada', 'operator:ada'])
})

t.test('two users who swap their external ids at once do not wait for each other', async (t) => {
  const [one, other] = [await makeUser(), await makeUser()]
  const change = (user: { id: string }, externalId: string) => users.change(user.id, { externalId }, actor())
  await change(one, 'one')
  t.match(await change(one, 'one'), { ok: true }, 'what a user has is not taken')
  await sql.begin(async (tx) => {
    await tx`update users set external_id = 'another' where id = ${one.id}`
    t.strictSame(await change(other, 'one'), { ok: false, reason: 'external_id_taken' })
  })
  t.match(await change(other, 'one'), { ok: true })
})

t.test('a change that fails for another reason than a taken external id says so', async (t) => {
  const { id } = await makeUser()
  await t.rejects(users.change(id, { name: ' ' }, actor()), { code: '23514' })
})

t.test('a read, and a change of all keys of a user, wait in the lane of their operator', async (t) => {
  const lanes: (string | undefined)[] = []
  const pool = {
    run: async (_work, lane) => void lanes.push(lane),
    change: async (_work, lane) => void lanes.push(lane),
  } as Partial<Pool> as Pool
  const { users } = storesOn(pool)
  const lane = 'operator:ada'
  await users.get('usr_1', lane)
  await users.list({ limit: 1 }, lane)
  // These read the user first.
  await users.revokeKeys('usr_1', actor())
  await users.remove('usr_1', actor())
  t.strictSame(lanes, Array(6).fill(lane))
})
