// Keys in Postgres: made, found, listed, touched.
import fc from 'fast-check'
import t from 'tap'
import { newId } from '../../src/rules/id.ts'
import { useServices } from '../services/index.ts'
import { actor, newKeyOf, nowS, openStores } from './open-stores.ts'

const stores = await openStores(t, await useServices(t))
const { keys, sql, makeUser, makeKey } = stores

const inOrder = <T>(items: T[]) => items.slice().sort()

t.test('a key made is stored as it was wanted, with no secret in what is given back', async (t) => {
  const user = await makeUser()
  const { token, key } = newKeyOf(user.id, { name: ' kept as sent\u00a0', expiresAt: 2_000_000_000 })
  const created = await keys.create(key, actor())
  t.match(created, {
    ok: true,
    key: {
      id: key.id,
      userId: user.id,
      name: ' kept as sent\u00a0',
      displayPrefix: token.slice(0, 10),
      rateLimitRpm: 1000,
      version: 1,
      expiresAt: 2_000_000_000,
      revokedAt: null,
      lastUsedAt: null,
    },
  })
  if (!created.ok) return
  t.ok(Number.isInteger(created.key.createdAt) && Math.abs(created.key.createdAt - nowS()) <= 5)
  t.notMatch(JSON.stringify(created), new RegExp(`${token}|${key.hash.toString('hex')}`))
  t.strictSame(await keys.get(key.id, user.id), created.key)
})

t.test('at rest there is neither the secret nor more of it than its prefix', async (t) => {
  const user = await makeUser()
  const { id, token } = await makeKey(user.id)
  const [row] = await sql`select api_keys::text as text from api_keys where id = ${id}`
  t.notOk(row!.text.includes(token))
  t.notOk(row!.text.includes(token.slice(0, 11)))
  const entries = await sql`select audit_log::text as text from audit_log where key_id = ${id}`
  t.equal(entries.length, 1)
  t.notOk(entries.some(({ text }) => text.includes(token.slice(0, 11))))
})

t.test('nothing is made for a user who is absent or deleted', async (t) => {
  const user = await makeUser()
  await stores.users.remove(user.id, actor())
  for (const userId of [user.id, newId('usr_')]) {
    t.strictSame(await keys.create(newKeyOf(userId).key, actor()), { ok: false, reason: 'no_such_user' })
  }
})

t.test('keys are found by their hash, in one reading, with what authentication needs', async (t) => {
  const [user, deleted] = [await makeUser(), await makeUser()]
  const usable = await makeKey(user.id, { expiresAt: 2_000_000_000 })
  const revoked = await makeKey(user.id)
  await keys.revoke(revoked.id, null, actor())
  const ownerless = await makeKey(deleted.id)
  await stores.users.remove(deleted.id, actor())
  const absent = newKeyOf(user.id).key.hash.toString('hex')

  const found = await keys.findByHash([revoked.hash, absent, usable.hash, ownerless.hash, usable.hash])
  t.strictSame(inOrder(found.map(({ hash }) => hash)), inOrder([usable.hash, revoked.hash, ownerless.hash]))
  const of = (key: { hash: string }) => found.find(({ hash }) => hash === key.hash)!
  t.match(of(usable), {
    id: usable.id,
    userId: user.id,
    rateLimitRpm: 1000,
    version: 1,
    expiresAt: 2_000_000_000,
    revokedAt: null,
    ownerDeleted: false,
  })
  t.match(of(revoked), { version: 2, revokedAt: Number, ownerDeleted: false })
  t.match(of(ownerless), { version: 2, revokedAt: null, ownerDeleted: true })
  t.ok(Math.abs(of(usable).nowS - Date.now() / 1000) < 60, "the database's clock")
  t.strictSame(await keys.findByHash([]), [])
})

t.test('a key is given to its owner only, and any other id is a miss', async (t) => {
  const [owner, stranger] = [await makeUser(), await makeUser()]
  const { id } = await makeKey(owner.id)
  t.equal((await keys.get(id, owner.id))?.id, id)
  const others = ['', 'apk_', 'apk_\0', `${id} `, id.toUpperCase(), 'ä'.repeat(50_000), "'; drop table users"]
  t.equal(await keys.get(id, stranger.id), null)
  for (const other of others) t.equal(await keys.get(other, owner.id), null)
})

t.test('pages of any size walk all keys once, newest first, also keys of one moment', async (t) => {
  const [user, stranger] = [await makeUser(), await makeUser()]
  const ids: string[] = []
  for (let i = 0; i < 25; i++) ids.unshift((await makeKey(user.id)).id)
  await makeKey(stranger.id)
  // Ten of one moment: then the id decides, which sorts by time as well.
  await sql`update api_keys set created_at = (select created_at from api_keys where id = ${ids[5]!})
    where id = any (${ids.slice(5, 15)})`
  await fc.assert(
    fc.asyncProperty(fc.infiniteStream(fc.integer({ min: 1, max: 30 })), async (sizes) => {
      const walked: string[] = []
      for (const limit of sizes) {
        const page = (await keys.list(user.id, { limit, startingAfter: walked.at(-1) }))!
        walked.push(...page.map(({ id }) => id))
        if (page.length > limit) return false
        if (page.length < limit) break
      }
      return walked.join() === ids.join()
    }),
    { numRuns: 20 },
  )
  t.pass('for every sequence of sizes tried')
})

t.test('keys of one second are listed and paged by their very moments', async (t) => {
  const user = await makeUser()
  const ids: string[] = []
  for (let i = 0; i < 6; i++) ids.push((await makeKey(user.id)).id)
  // As instances whose clocks differ make them: the later the id, the earlier the moment.
  for (const [i, id] of ids.entries()) {
    await sql`update api_keys set created_at = date_trunc('hour', now()) + make_interval(secs => ${0.9 - i / 10})
      where id = ${id}`
  }
  const walked: string[] = []
  for (let page = 0; page < 6; page++) {
    walked.push(
      ...(await keys.list(user.id, { limit: 1, startingAfter: walked.at(-1) }))!.map(({ id }) => id),
    )
  }
  t.strictSame(walked, ids)
  t.strictSame(
    (await keys.list(user.id, { limit: 10 }))!.map(({ id }) => id),
    ids,
  )
})

t.test('a page begins after one of the own keys only', async (t) => {
  const [user, stranger] = [await makeUser(), await makeUser()]
  await makeKey(user.id)
  const { id } = await makeKey(stranger.id)
  for (const startingAfter of [id, newId('apk_'), '', 'apk_\0']) {
    t.equal(await keys.list(user.id, { limit: 10, startingAfter }), null)
  }
  t.strictSame(
    await keys.list((await makeUser()).id, { limit: 10 }),
    [],
    'a user without keys has an empty page',
  )
})

t.test('each key is in the list of exactly one status', async (t) => {
  const user = await makeUser()
  const [active, revoked, expired, both] = [
    await makeKey(user.id, { expiresAt: nowS() + 1000 }),
    await makeKey(user.id),
    await makeKey(user.id, { expiresAt: nowS() - 10 }),
    await makeKey(user.id, { expiresAt: nowS() - 10 }),
  ]
  for (const { id } of [revoked, both]) await keys.revoke(id, null, actor())
  const listed = async (status?: 'active' | 'revoked' | 'expired') =>
    (await keys.list(user.id, { limit: 10, status }))!.map(({ id }) => id)
  t.strictSame(await listed('active'), [active.id])
  t.strictSame(await listed('revoked'), [both.id, revoked.id])
  t.strictSame(await listed('expired'), [expired.id])
  t.strictSame(await listed(), [both.id, expired.id, revoked.id, active.id])
})

t.test('last uses of many keys are written at once, and never set back', async (t) => {
  const user = await makeUser()
  const [one, other] = [await makeKey(user.id), await makeKey(user.id)]
  const lastUses = async () => [one, other].map(async ({ id }) => (await keys.get(id, user.id))!.lastUsedAt)
  const atS = nowS()
  await keys.touch(
    new Map([
      [one.id, atS],
      [other.id, atS - 5],
      [newId('apk_'), atS],
    ]),
  )
  t.strictSame(await Promise.all(await lastUses()), [atS, atS - 5])
  await keys.touch(
    new Map([
      [one.id, atS - 1],
      [other.id, atS + 1],
    ]),
  )
  t.strictSame(await Promise.all(await lastUses()), [atS, atS + 1])
  await keys.touch(new Map())
  t.equal((await keys.get(one.id, user.id))!.version, 1, 'a use is no change')
})

t.test('instances that write the last uses of the same keys do not block each other', async (t) => {
  const user = await makeUser()
  const made = await Promise.all(Array.from({ length: 40 }, () => makeKey(user.id)))
  const atS = nowS()
  const writes = Array.from({ length: 30 }, (_, i) => {
    const uses = made.map(({ id }): [string, number] => [id, atS + i])
    return keys.touch(new Map(i % 2 ? uses : uses.reverse()))
  })
  await Promise.all(writes)
  for (const { id } of made) t.equal((await keys.get(id, user.id))!.lastUsedAt, atS + 29)
})
