// Changes of keys in Postgres: each with its audit entry or not at all, and decided by what holds when they commit.
import t from 'tap'
import { newId } from '../../src/rules/id.ts'
import { Unavailable } from '../../src/stores.ts'
import { until } from '../process/until.ts'
import { useServices } from '../services/index.ts'
import { actor, newKeyOf, nowS, openStores } from './open-stores.ts'

const services = await useServices(t)
const stores = await openStores(t, services)
const { keys, users, audit, sql, makeUser, makeKey } = stores

t.test('a change raises the version and changes what it names only', async (t) => {
  const user = await makeUser()
  const key = await makeKey(user.id, { expiresAt: 2_000_000_000 })
  const { hash, token, ...stored } = key
  const changed = await keys.change(key.id, user.id, { rateLimitRpm: 7 }, actor())
  t.strictSame(changed, { ok: true, key: { ...stored, rateLimitRpm: 7, version: 2 } })
  const cleared = await keys.change(key.id, user.id, { expiresAt: null, name: 'new' }, actor())
  t.strictSame(cleared, {
    ok: true,
    key: { ...stored, rateLimitRpm: 7, version: 3, expiresAt: null, name: 'new' },
  })
  t.strictSame(await keys.get(key.id, user.id), (cleared as { key: unknown }).key)
})

t.test('a revoked and an expired key are not changed, and a stranger sees neither', async (t) => {
  const [user, stranger] = [await makeUser(), await makeUser()]
  const revoked = await makeKey(user.id)
  await keys.revoke(revoked.id, user.id, actor())
  const expired = await makeKey(user.id, { expiresAt: nowS() - 1 })
  for (const { id } of [revoked, expired]) {
    const before = await keys.get(id, user.id)
    t.strictSame(await keys.change(id, user.id, { name: 'x' }, actor()), { ok: false, reason: 'not_active' })
    t.strictSame(await keys.change(id, stranger.id, { name: 'x' }, actor()), { ok: false, reason: 'absent' })
    t.strictSame(await keys.get(id, user.id), before)
  }
  for (const id of [newId('apk_'), '', 'apk_\0']) {
    t.strictSame(await keys.change(id, user.id, { name: 'x' }, actor()), { ok: false, reason: 'absent' })
  }
})

t.test('a key revoked again keeps its moment and its version', async (t) => {
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

t.test('a key is revoked by its owner or by the operator', async (t) => {
  const [user, stranger] = [await makeUser(), await makeUser()]
  const { id } = await makeKey(user.id)
  const absence = { ok: false, reason: 'absent' }
  t.strictSame(await keys.revoke(id, stranger.id, actor()), absence)
  t.equal((await keys.get(id, user.id))!.revokedAt, null)
  t.match(await keys.revoke(id, null, actor()), { ok: true, key: { id, revokedAt: Number } })
  for (const absent of [newId('apk_'), 'apk_\0']) {
    t.strictSame(await keys.revoke(absent, null, actor()), absence)
  }
})

t.test('an expired key can be revoked', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id, { expiresAt: nowS() - 1 })
  t.match(await keys.revoke(id, user.id, actor()), { ok: true, key: { revokedAt: Number } })
})

t.test(
  'creation, change and revocation leave one audit entry each, and what changes nothing leaves none',
  async (t) => {
    const user = await makeUser()
    const caller = await makeKey(user.id)
    const { token, key } = newKeyOf(user.id, { name: 'audited' })
    const [creating, changing, revoking, idle] = [1, 2, 3, 4].map(() => actor(caller.id))
    await keys.create(key, creating!)
    await keys.change(key.id, user.id, { rateLimitRpm: 5 }, changing!)
    await keys.revoke(key.id, user.id, revoking!)
    await keys.revoke(key.id, user.id, idle!)
    await keys.change(key.id, user.id, { rateLimitRpm: 6 }, idle!)

    const expected = {
      reason: null,
      key_id: key.id,
      user_id: user.id,
      actor: `key:${caller.id}`,
      ip: '192.0.2.1',
    }
    const of = async ({ requestId }: { requestId: string }) => audit.find(requestId)
    t.match(await of(creating!), [{ ...expected, event: 'key.created', details: { name: 'audited' } }])
    t.match(await of(changing!), [{ ...expected, event: 'key.updated', details: { rate_limit_rpm: 5 } }])
    t.match(await of(revoking!), [{ ...expected, event: 'key.revoked', method: 'POST', path: '/v1/keys' }])
    t.strictSame(await of(idle!), [])
    const all = JSON.stringify([await of(creating!), await of(changing!), await of(revoking!)])
    t.notOk(all.includes(token.slice(0, 11)) || all.includes(key.hash.toString('hex')), 'no secret in them')
  },
)

t.test('a change whose audit entry is refused is not made', async (t) => {
  const own = await openStores(t, services)
  const user = await own.makeUser()
  const { id } = await own.makeKey(user.id)
  await own.sql`alter table audit_log add constraint nothing_more_is_taken check (event is null) not valid`
  const { key } = newKeyOf(user.id)
  const refused = { code: '23514' }
  await t.rejects(own.keys.create(key, actor()), refused)
  await t.rejects(own.keys.change(id, user.id, { name: 'x' }, actor()), refused)
  await t.rejects(own.keys.revoke(id, user.id, actor()), refused)
  await t.rejects(own.users.remove(user.id, actor()), refused)
  t.equal(await own.keys.get(key.id, user.id), null)
  t.match(await own.keys.get(id, user.id), { version: 1, name: 'a key', revokedAt: null })
  t.equal((await own.users.get(user.id))!.deleted_at, null)
})

t.test('of creations at once at the bound exactly as many succeed as there is room', async (t) => {
  const own = await openStores(t, services, { keysPerUserMax: 5 })
  const user = await own.makeUser()
  const created = await Promise.all(
    Array.from({ length: 12 }, () => own.keys.create(newKeyOf(user.id).key, actor())),
  )
  t.equal(created.filter(({ ok }) => ok).length, 5)
  t.ok(created.every((one) => one.ok || one.reason === 'limit_reached'))
  t.equal((await own.keys.list(user.id, { limit: 100 }))!.length, 5)
})

t.test('revoked and expired keys leave room for others', async (t) => {
  const own = await openStores(t, services, { keysPerUserMax: 2 })
  const user = await own.makeUser()
  await own.makeKey(user.id, { expiresAt: nowS() - 1 })
  const revoked = await own.makeKey(user.id)
  await own.keys.revoke(revoked.id, null, actor())
  await own.makeKey(user.id)
  await own.makeKey(user.id)
  const created = await own.keys.create(newKeyOf(user.id).key, actor())
  t.strictSame(created, { ok: false, reason: 'limit_reached' })
})

t.test('a key that has become unusable makes no other', async (t) => {
  const user = await makeUser()
  const [revoked, expired, ownerless] = [
    await makeKey(user.id),
    await makeKey(user.id, { expiresAt: nowS() - 1 }),
    await makeKey(user.id),
  ]
  const refusal = async (keyId: string) => keys.create(newKeyOf(user.id).key, actor(keyId))
  const refused = (denial: string) => ({ ok: false, reason: 'caller_unusable', denial })
  await keys.revoke(revoked.id, null, actor())
  t.strictSame(await refusal(revoked.id), refused('revoked'))
  t.strictSame(await refusal(expired.id), refused('expired'))
  t.strictSame(await refusal(newId('apk_')), refused('unknown_key'))
  await users.remove(user.id, actor())
  t.strictSame(await refusal(ownerless.id), refused('owner_deleted'))
  t.equal((await keys.list(user.id, { limit: 100 }))!.length, 3)
})

t.test('a key revoked while it makes another makes nothing', async (t) => {
  const user = await makeUser()
  const caller = await makeKey(user.id)
  const { key } = newKeyOf(user.id)
  const creating = await whileUncommitted(
    (tx) => tx`update api_keys set revoked_at = now() where id = ${caller.id}`,
    () => keys.create(key, actor(caller.id)),
  )
  t.strictSame(creating, { ok: false, reason: 'caller_unusable', denial: 'revoked' })
  t.equal(await keys.get(key.id, user.id), null)
})

t.test('a user deleted while a key is made for it gets none', async (t) => {
  const user = await makeUser()
  const { key } = newKeyOf(user.id)
  const creating = await whileUncommitted(
    (tx) => tx`update users set deleted_at = now() where id = ${user.id}`,
    () => keys.create(key, actor()),
  )
  t.strictSame(creating, { ok: false, reason: 'no_such_user' })
})

t.test('what cannot be stored is a fault of ours and not of the server', async (t) => {
  const user = await makeUser()
  const rejected = await keys.create(newKeyOf(user.id, { name: 'a\0b' }).key, actor()).catch((error) => error)
  t.type(rejected, Error)
  t.notOk(rejected instanceof Unavailable)
})

/** Starts the work while the other change is made but not committed; commits once the work waits for it. */
async function whileUncommitted<T>(
  change: (tx: typeof sql) => PromiseLike<unknown>,
  work: () => Promise<T>,
): Promise<T> {
  let working: Promise<T> | undefined
  await sql.begin(async (tx) => {
    await change(tx as unknown as typeof sql)
    working = work()
    const [me] = await tx`select pg_backend_pid() as pid`
    await until(
      'it waits',
      async () =>
        (
          await sql`
      select 1 from pg_stat_activity where ${me!.pid} = any (pg_blocking_pids(pid))`
        ).length > 0,
    )
  })
  return working!
}
