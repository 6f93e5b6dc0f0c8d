// Keys in Postgres: created, found, listed, used; and what the statements do inside it.
import fc from 'fast-check'
import postgres from 'postgres'
import t from 'tap'
import { createLastUsed } from '../../src/guard/last-used.ts'
import type { Pool } from '../../src/postgres/pool.ts'
import { createUsageStore } from '../../src/postgres/usage.ts'
import { newId } from '../../src/rules/id.ts'
import type { MintedKey } from '../../src/rules/new-key.ts'
import type { KeyUse } from '../../src/stores.ts'
import { cachedKey } from '../guard/gated.ts'
import { startPrivatePostgres } from '../services/index.ts'
import { actor, newKeyOf, nowS, openStores, storesOn, useOf } from './open-stores.ts'

const { url, keys, users, sql, makeUser, makeKey, whileUncommitted } = await openStores(t)

t.test('a key is stored as it was asked for, and the answer has no secret', async (t) => {
  const user = await makeUser()
  const name = ' kept as sent\u00a0'
  const { token, key } = newKeyOf(user.id, { name, expiresAt: 2_000_000_000 })
  const created = await keys.create(key, actor())
  if (!created.ok) return t.fail(created.reason)
  const { createdAt, ...rest } = created.key
  t.strictSame(rest, {
    id: key.id,
    userId: user.id,
    name,
    displayPrefix: token.slice(0, 10),
    rateLimitRpm: 1000,
    version: 1,
    expiresAt: 2_000_000_000,
    revokedAt: null,
    lastUsedAt: null,
    state: 'active',
  })
  t.ok(Number.isInteger(createdAt) && Math.abs(createdAt - nowS()) <= 5)
  t.strictSame(await keys.get(key.id, user.id), created.key)
})

t.test('at rest there is no more of the secret than its prefix', async (t) => {
  const user = await makeUser()
  const { id, token } = await makeKey(user.id)
  const rows = await sql`select api_keys::text as text from api_keys where id = ${id}
    union all select audit_log::text from audit_log where key_id = ${id}`
  t.equal(rows.length, 2)
  t.notOk(rows.some(({ text }) => text.includes(token.slice(0, 11))))
})

t.test('nothing is created for a user who is absent or deleted', async (t) => {
  const user = await makeUser()
  await users.remove(user.id, actor())
  for (const userId of [user.id, newId('usr_')]) {
    t.strictSame(await keys.create(newKeyOf(userId).key, actor()), { ok: false, reason: 'no_such_user' })
  }
})

t.test('one reading finds keys by their hashes, with what authentication needs', async (t) => {
  const [user, deleted] = [await makeUser(), await makeUser()]
  const usable = await makeKey(user.id, { expiresAt: 2_000_000_000 })
  const revoked = await makeKey(user.id)
  await keys.revoke(revoked.id, null, actor())
  const ownerless = await makeKey(deleted.id)
  await users.remove(deleted.id, actor())
  const absent = newKeyOf(user.id).key.hash.toString('hex')

  const { found, role } = await keys.findByHash([
    revoked.hash,
    absent,
    usable.hash,
    ownerless.hash,
    usable.hash,
  ])
  t.equal(role, 'primary')
  t.strictSame(found.map(({ hash }) => hash).sort(), [usable.hash, revoked.hash, ownerless.hash].sort())
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
  t.strictSame(await keys.findByHash([]), { found: [], role: 'primary', server: '' })
})

t.test('only its owner gets a key, and any other id is a miss', async (t) => {
  const [owner, stranger] = [await makeUser(), await makeUser()]
  const { id } = await makeKey(owner.id)
  t.equal((await keys.get(id, owner.id))?.id, id)
  t.equal(await keys.get(id, stranger.id), null)
  const others = ['', 'apk_', 'apk_\0', `${id} `, id.toUpperCase(), 'ä'.repeat(50_000), "'; drop table users"]
  for (const other of others) t.equal(await keys.get(other, owner.id), null)
})

t.test('pages of any size walk all keys once, newest first, by microseconds and then by id', async (t) => {
  const [user, stranger] = [await makeUser(), await makeUser()]
  const ids: string[] = []
  for (let i = 0; i < 25; i++) ids.unshift((await makeKey(user.id)).id)
  await makeKey(stranger.id)
  // Ten of the same time: then the id decides, which sorts by time as well.
  await sql`update api_keys set created_at = (select created_at from api_keys where id = ${ids[5]!})
    where id = any (${ids.slice(5, 15)})`
  // Six within a second, as instances whose clocks differ create them: the later the id, the
  // earlier the time.
  const skewed = ids.splice(19).reverse()
  for (const [i, id] of skewed.entries())
    await sql`update api_keys set created_at = date_trunc('hour', created_at) - make_interval(secs => ${i / 10})
      where id = ${id}`
  ids.push(...skewed)
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
    { numRuns: 20, examples: [[fc.stream(ones())]] },
  )
  t.pass('for every sequence of sizes tried')
})

function* ones() {
  for (;;) yield 1
}

t.test("a page begins after one of the user's own keys only", async (t) => {
  const [user, stranger, idle] = [await makeUser(), await makeUser(), await makeUser()]
  await makeKey(user.id)
  const { id } = await makeKey(stranger.id)
  for (const startingAfter of [id, newId('apk_'), '', 'apk_\0']) {
    t.equal(await keys.list(user.id, { limit: 10, startingAfter }), null)
  }
  t.strictSame(await keys.list(idle.id, { limit: 10 }), [], 'a user without keys has an empty page')
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

for (const [instant, state, expiresAt] of [
  ['infinity', 'active', null],
  ['-infinity', 'expired', 0],
] as const) {
  t.test(`a key that somebody let expire at ${instant} is ${state}`, async (t) => {
    const user = await makeUser()
    const made = await makeKey(user.id)
    await sql`update api_keys set expires_at = ${instant}::text::timestamptz where id = ${made.id}`
    t.match(await keys.get(made.id, user.id), { state, expiresAt })
    const { found } = await keys.findByHash([made.hash])
    t.match(found, [{ id: made.id, expiresAt }])
  })
}

t.test('last uses of many keys are written at once, and never moved back', async (t) => {
  const user = await makeUser()
  const [one, other] = [await makeKey(user.id), await makeKey(user.id)]
  const lastUses = () =>
    Promise.all([one, other].map(async ({ id }) => (await keys.get(id, user.id))!.lastUsedAt))
  const atS = nowS() - 60
  const touch = (...uses: [id: string, atS: number][]) => keys.touch(uses.map(([id, at]) => useOf(id, at)))
  await touch([one.id, atS], [other.id, atS - 5], [newId('apk_'), atS])
  t.strictSame(await lastUses(), [atS, atS - 5])
  await touch([one.id, atS - 1], [other.id, atS + 1])
  t.strictSame(await lastUses(), [atS, atS + 1])
  await touch()
  await sql.begin(async (tx) => {
    await tx`select from api_keys where id = ${one.id} for update`
    const uses = [one.id, other.id, newId('apk_')].map((id) => useOf(id, atS + 7))
    t.strictSame((await keys.touch(uses, { skipsLocked: true })).skipped, [one.id])
  })
  t.equal((await keys.get(other.id, user.id))!.lastUsedAt, atS + 7)
  t.strictSame((await keys.touch([useOf(one.id, atS)], { skipsLocked: true })).skipped, [])
  t.equal((await keys.get(one.id, user.id))!.version, 1, 'a use is no change')
  await touch([one.id, atS + 86_400])
  const [ahead] = await lastUses()
  t.ok(ahead! > atS && ahead! <= nowS() + 1, 'a clock that is ahead leaves no use in the future')
  const [row] = await sql`select ceil(extract(epoch from clock_timestamp()))::float8 as next`
  await touch([other.id, row!.next])
  t.equal((await lastUses())[1], row!.next, 'some milliseconds make no difference')
})

t.test('last uses do not wait for the disk, but a change on the same connection does', async (t) => {
  const user = await makeUser()
  const { id } = await makeKey(user.id)
  await sql`create table commits (place serial, waits text)`
  await sql`
    create function note_commit() returns trigger language plpgsql as $$ begin
      insert into commits (waits) values (current_setting('synchronous_commit'));
      return null;
    end $$`
  await sql`create trigger note_commit after update on api_keys execute function note_commit()`
  t.teardown(() => sql`drop trigger note_commit on api_keys`)
  await keys.touch([useOf(id, nowS() - 2)])
  await keys.touch([useOf(id, nowS() - 1)], { skipsLocked: true })
  await keys.change(id, user.id, { name: 'new' }, actor())
  const commits = await sql`select waits from commits order by place`
  t.strictSame(
    commits.map(({ waits }) => waits),
    ['off', 'off', 'on'],
  )
})

t.test('a use confirms a key that is usable and just as a look-up has found it', async (t) => {
  const user = await makeUser()
  const { id, hash } = await makeKey(user.id)
  let atS = nowS() - 3600
  const found = async () => ({ ...(await keys.findByHash([hash])).found[0]!, refreshing: true })
  const confirmed = async (key: KeyUse['key'], options = {}) => {
    const touched = await keys.touch([{ key, atS: ++atS }], options)
    t.ok(Math.abs(touched.nowS - Date.now() / 1000) < 60)
    return touched.confirmed
  }
  const known = await found()
  t.strictSame(await confirmed(known), [id])
  t.strictSame(await confirmed(known, { skipsLocked: true }), [id])
  t.strictSame((await keys.touch([{ key: known, atS }])).confirmed, [], 'the use is stored already')
  for (const more of [
    { refreshing: false },
    { userId: newId('usr_') },
    { rateLimitRpm: known.rateLimitRpm + 1 },
    { expiresAt: nowS() + 3600 },
    { version: known.version + 1 },
    { version: known.version - 1 },
  ])
    t.strictSame(await confirmed({ ...known, ...more }), [], JSON.stringify(more))
  for (const expiry of ['2099-01-01T00:00:00.7Z', 'infinity', '-infinity']) {
    await sql`update api_keys set expires_at = ${expiry}::text::timestamptz where id = ${id}`
    t.strictSame(await confirmed(await found()), expiry === '-infinity' ? [] : [id], expiry)
  }
  await sql`update api_keys set expires_at = null, revoked_at = now() where id = ${id}`
  t.strictSame(await confirmed(known), [])
  await sql`update api_keys set revoked_at = null where id = ${id}`
  t.strictSame(await confirmed(known), [id])
  await sql`update users set deleted_at = now() where id = ${user.id}`
  t.strictSame(await confirmed(known), [])
})

t.test('instances that write the last uses of the same keys do not block each other', async (t) => {
  const user = await makeUser()
  const made = await Promise.all(Array.from({ length: 40 }, () => makeKey(user.id)))
  const atS = nowS() - 60
  const writes = Array.from({ length: 30 }, (_, i) => {
    const uses = made.map(({ id }) => useOf(id, atS + i))
    return keys.touch(i % 2 ? uses : uses.reverse())
  })
  await Promise.all(writes)
  for (const { id } of made) t.equal((await keys.get(id, user.id))!.lastUsedAt, atS + 29)
})

t.test(
  'of keys that were created together and are used together, most rows stay on their page',
  async (t) => {
    // On a server of its own: a transaction that writes to any database of a server keeps old row
    // versions in all of them.
    const { keys, sql, makeUser } = await openStores(t, (await startPrivatePostgres(t)).url)
    await sql`alter table api_keys set (autovacuum_enabled = off)`
    const user = await makeUser()
    const ids = Array.from({ length: 5000 }, () => newId('apk_'))
    await sql`
    insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix)
    select id, ${user.id}, 'a key', sha256(id::bytea), 'hs', 'lk_prefix' from unnest(${ids}::text[]) id`
    const pages = async () => {
      const rows =
        await sql`select id, (ctid::text::point)[0]::int as page from api_keys where id = any (${ids})`
      return new Map(rows.map(({ id, page }) => [id as string, page as number]))
    }
    const before = await pages()
    const lastUsed = createLastUsed({ keys })
    for (const id of ids) lastUsed.note(cachedKey({ id }), nowS())
    await lastUsed.close()
    const after = await pages()
    const stayed = ids.filter((id) => after.get(id) === before.get(id)).length
    t.ok(stayed > 0.9 * ids.length, `${stayed} of ${ids.length}`)
  },
)

t.test('a key is stored under another hash only if it still has the one it was found by', async (t) => {
  const user = await makeUser()
  const [key, other] = [await makeKey(user.id), await makeKey(user.id)]
  const to = newKeyOf(user.id).key.hash.toString('hex')
  await keys.rehash([{ id: key.id, from: other.hash, to }], 'hs_new')
  const found = async (hash: string) => (await keys.findByHash([hash])).found.map(({ id }) => id)
  t.strictSame(await found(key.hash), [key.id])
  t.strictSame(await found(to), [])
  await keys.rehash([{ id: key.id, from: key.hash, to }], 'hs_new')
  t.strictSame(await found(key.hash), [])
  t.strictSame(await found(to), [key.id])
  const counted = async () => (await keys.countBySecret()).get('hs_new')
  t.equal(await counted(), 1)
  await users.remove(user.id, actor())
  t.equal(await counted(), undefined, 'nobody can use it any more')
})

t.test('a key whose hash changes while it is to be stored under another one keeps it', async (t) => {
  const user = await makeUser()
  const { id, hash } = await makeKey(user.id)
  const [to, meanwhile] = [newKeyOf(user.id).key.hash, newKeyOf(user.id).key.hash]
  await whileUncommitted(
    (tx) => tx`update api_keys set key_hash = ${meanwhile} where id = ${id}`,
    () => keys.rehash([{ id, from: hash, to: to.toString('hex') }], 'hs_late'),
  )
  const { found } = await keys.findByHash([meanwhile.toString('hex')])
  t.strictSame(
    found.map((key) => key.id),
    [id],
  )
})

t.test('last uses and other hashes are written in the order of the ids, as changes are made', async (t) => {
  const user = await makeUser()
  for (const write of [
    (made: MintedKey[]) => keys.touch(made.map(({ id }) => useOf(id))),
    (made: MintedKey[]) =>
      keys.rehash(
        made.map(({ id, hash }) => ({ id, from: hash.toString('hex'), to: hash.toString('hex') })),
        'hs',
      ),
  ]) {
    const [first, second] = [newKeyOf(user.id).key, newKeyOf(user.id).key]
    // In the table they have the other order.
    for (const key of [second, first]) await keys.create(key, actor())
    const written = whileUncommitted(
      (tx) => tx`select from api_keys where id = ${first.id} for update`,
      async () => void (await write([second, first])),
      (tx) => tx`select from api_keys where id = ${second.id} for update nowait`,
    )
    await t.resolves(written)
  }
})

interface Statement {
  text: string
  values: string[]
}

const sent: Statement[] = []
const watched = postgres(url, {
  max: 1,
  debug: (_connection, text, values) => sent.push({ text, values: values as string[] }),
})
t.teardown(() => watched.end({ timeout: 1 }))
const watchedPool: Pool = {
  run: (work) => work(watched, () => {}),
  change: (work) => work(watched, () => {}),
  close: () => watched.end(),
}
const { keys: watchedKeys, users: watchedUsers } = storesOn(watchedPool)

t.test('whatever a user asks for waits in the lane of that user', async (t) => {
  const lanes: (string | undefined)[] = []
  const run: Pool['run'] = (work, lane) => {
    lanes.push(lane)
    return watchedPool.run(work)
  }
  const noting = { ...watchedPool, run, change: run }
  const { keys } = storesOn(noting)
  const { id: userId } = await makeUser()
  const { key } = newKeyOf(userId)
  await keys.create(key, actor(key.id))
  const caller = (await makeKey(userId)).id
  await keys.get(key.id, userId)
  await keys.list(userId, { limit: 1 })
  await keys.change(key.id, userId, { name: 'changed' }, actor(caller))
  await keys.rotate(key.id, userId, { successor: newKeyOf(userId).key, graceS: 60 }, actor(caller))
  await keys.revoke(key.id, userId, actor(caller))
  t.strictSame(lanes, Array(6).fill(userId))
})

t.test('whatever an operator reads waits in the lane of that operator', async (t) => {
  const lanes: (string | undefined)[] = []
  const pool = { run: async (_work, lane) => void lanes.push(lane) } as Partial<Pool> as Pool
  const { keys } = storesOn(pool)
  const lane = 'operator:ada'
  await keys.get('apk_1', null, lane)
  await keys.getByHash(['00'], lane)
  await keys.list(null, { limit: 1 }, lane)
  await keys.list('usr_1', { limit: 1 }, lane)
  await keys.rank([], { limit: 1, lane })
  t.strictSame(lanes, Array(5).fill(lane), 'also the keys of one user, who must not wait behind it')
})

/** The last statement that this work sends. */
async function statementOf(work: () => Promise<unknown>): Promise<Statement> {
  sent.length = 0
  await work()
  return sent.at(-1)!
}

/** How Postgres runs the last statement that this work sends. */
async function planOf(work: () => Promise<unknown>): Promise<string> {
  const { text, values } = await statementOf(work)
  const rows = await sql.unsafe(`explain (analyze, costs off, timing off) ${text}`, values)
  return rows.map((row) => row['QUERY PLAN']).join('\n')
}

/** Many keys of a new user; the columns are SQL expressions. */
async function manyKeys({ expiresAt = 'null', revokedAt = 'null' } = {}) {
  const { id } = await makeUser()
  await sql.unsafe(
    `insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix, created_at, expires_at, revoked_at)
     select 'apk_' || $1::text || n, $2, 'a key', sha256(($1::text || n)::bytea), 'x', 'lk_1234567',
       now() - make_interval(secs => n), ${expiresAt}, ${revokedAt}
     from generate_series(1, 3000) n`,
    [newId('apk_').slice(4), id],
  )
  return id
}

t.test('every page is read from an index, that of a status past no row of another one', async (t) => {
  const users = {
    active: await manyKeys(),
    'active, expiring': await manyKeys({ expiresAt: "now() + interval '1 day'" }),
    expired: await manyKeys({ expiresAt: "now() - interval '1 day'" }),
    revoked: await manyKeys({ revokedAt: 'now()' }),
  }
  await sql`analyze api_keys`
  for (const [name, userId] of Object.entries({ ...users, 'of all users': null }))
    for (const status of ['active', 'expired', 'revoked'] as const) {
      const plan = await planOf(() => watchedKeys.list(userId, { limit: 101, status }))
      const index = `${status === 'revoked' ? 'api_keys_revoked' : 'api_keys_not_revoked'}${userId ? '' : '_newest_first'}`
      t.match(plan, `Index Scan using ${index} `, `${status}: keys ${name}`)
      t.notMatch(plan, /Rows Removed|Sort/)
    }
  for (const [userId, page, index] of [
    [users.active, {}, 'api_keys_of_user'],
    [null, {}, 'api_keys_newest_first'],
    [null, { displayPrefix: 'lk_7654321' }, 'api_keys_by_prefix'],
  ] as const)
    t.match(await planOf(() => watchedKeys.list(userId, { limit: 101, ...page })), `using ${index} `)
})

t.test('usable keys are counted without a look at those that have expired', async (t) => {
  const userId = await manyKeys({ expiresAt: "now() - interval '1 day'" })
  await sql`update api_keys set expires_at = 'infinity' where id in (
    select id from api_keys where user_id = ${userId} limit 3)`
  await sql`analyze api_keys`
  await sql.begin(async (sql) => {
    const read = () => sql`
      select sum(pg_stat_get_xact_tuples_returned(relation))::int as rows
      from (select 'api_keys'::regclass union select indexrelid from pg_index where indrelid = 'api_keys'::regclass)
        as relations (relation)`
    const [before] = await read()
    const [counted] =
      await sql`select usable_keys(${userId}, 100)::int as every, usable_keys(${userId}, 2)::int as some`
    const [after] = await read()
    t.strictSame(counted, { every: 3, some: 2 })
    t.equal(after!.rows - before!.rows, 5)
  })
})

t.test('users and incomplete minutes are read from indexes', async (t) => {
  const times = sql`select n, now() - make_interval(mins => n) as at from generate_series(1, 3000) n`
  await sql`
    insert into users (id, name, created_at) select 'usr_' || n, 'somebody', at from (${times}) as times`
  await sql`insert into usage_minutes (starts_at, stored) select at, 0 from (${times}) as times`
  await sql`analyze users, usage_minutes`

  t.match(await planOf(() => watchedUsers.list({ limit: 101 })), 'using users_newest_first ')
  const usage = createUsageStore({ management: watchedPool, usage: watchedPool, rollups: watchedPool })
  const range = { step: 'minute', sinceS: nowS() - 86_400, untilS: nowS() } as const
  const read = () =>
    usage.read({ id: 'apk_1', createdAt: 0 }, range, { nowS: nowS(), live: [], isLocal: false })
  t.match(await planOf(read), 'using usage_minutes_incomplete ')
})

t.test('the usage of a key is read minute by minute, and not that of all keys', async (t) => {
  await sql`
    insert into key_usage (starts_at, key_id, requests, limited)
    select date_trunc('hour', now()) - make_interval(mins => n % 60), 'apk_' || n, 1, 0
    from generate_series(1, 60000) n`
  await sql`analyze key_usage`
  const usage = createUsageStore({ management: watchedPool, usage: watchedPool, rollups: watchedPool })
  const untilS = nowS() - (nowS() % 3600) + 60
  const range = { step: 'minute', sinceS: untilS - 3600, untilS } as const
  sent.length = 0
  const { data } = await usage.read({ id: 'apk_7', createdAt: 0 }, range, {
    nowS: nowS(),
    live: [],
    isLocal: false,
  })
  t.equal(data.length, 1)
  const { text, values } = sent.find(({ text }) => text.includes('from "key_usage"'))!
  const [row] = await sql.unsafe(`explain (analyze, buffers, format json) ${text}`, values)
  const { 'Shared Hit Blocks': hit, 'Shared Read Blocks': read } = row!['QUERY PLAN'][0].Plan
  t.ok(hit + read < 400, `${hit + read} pages of 8 kB`)
})

t.test('an unknown hash reads and sends a row as a known one does', async (t) => {
  const { hash } = await makeKey((await makeUser()).id)
  const answers = []
  for (const asked of [hash, '00'.repeat(32)]) {
    const { text, values } = await statementOf(() => watchedKeys.findByHash([asked]))
    const rows = await sql.unsafe(text, values)
    t.ok(rows.every(({ id }) => id !== null))
    answers.push(rows.map((row) => Object.keys(row)))
  }
  t.equal(answers[0]!.length, 1)
  t.strictSame(answers[1], answers[0])
})

t.test('keys are ranked by use and by share of their limit, those without a limit last', async (t) => {
  const user = await makeUser()
  const [busy, full] = [await makeKey(user.id), await makeKey(user.id)]
  await sql`update api_keys set rate_limit_rpm = 3 where id = ${full.id}`
  const counts = [
    { keyId: newId('apk_'), count: 50 },
    { keyId: full.id, count: 3 },
    { keyId: busy.id, count: 100 },
  ]
  const ranked = await keys.rank(counts, { limit: 1, lane: 'cli:test' })
  t.same(new Set(ranked.map(({ id }) => id)), new Set([busy.id, full.id]))
})
