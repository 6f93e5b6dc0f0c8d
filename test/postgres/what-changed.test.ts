// Which keys have changed, as each instance asks once a second (sql/postgres/028 and 030).
import t from 'tap'
import { createInstanceStore, dropKeyChanges } from '../../src/postgres/instances.ts'
import { migrate } from '../../src/postgres/migrate.ts'
import { createPool } from '../../src/postgres/pool.ts'
import { until } from '../process/until.ts'
import { openDatabase, startPrivatePostgres } from '../services/index.ts'
import { actor, openStores } from './open-stores.ts'

const { sql, pool, keys, users, makeUser, makeKey } = await openStores(t)
const { report, remove } = createInstanceStore({ instances: pool, management: pool }, { outageTtlMs: 60_000 })
const instance = { version: '1', uptimeS: 1, counting: 'shared', postgres: 'ok', traffic: {} }

async function created() {
  const user = await makeUser()
  return { user, key: await makeKey(user.id) }
}

const asked = async (since: string | null, id = 'ins_1') =>
  (await report({ ...instance, id } as never, { fence: 0, since })).changes

/** Some stay until transactions that were under way have ended, in whatever database of the server. */
const kept = async (id: string) => (await sql`select from key_changes where id = ${id}`).length

/** What was noted because of this work. */
async function changedBy(work: () => Promise<unknown>): Promise<string[]> {
  const { known } = await asked(null)
  await work()
  return (await asked(known)).changed!.sort()
}

t.test('a report learns which keys and users have changed since the last one', async (t) => {
  const { user, key } = await created()
  const other = await created()
  const isSet = (column: string, value: string) => async () =>
    void (await sql.unsafe(`update api_keys set ${column} = ${value} where id = '${key.id}'`))
  for (const [column, value] of [
    ['rate_limit_rpm', '7'],
    ['version', 'version + 1'],
    ['expires_at', "now() + interval '1 hour'"],
    ['revoked_at', 'now()'],
    ['key_hash', "sha256('another')"],
    ['user_id', `'${other.user.id}'`],
  ] as const)
    t.strictSame(await changedBy(isSet(column, value)), [key.id], column)
  t.strictSame(await changedBy(isSet('last_used_at', 'now()')), [], 'a last use is no change')
  t.strictSame(await changedBy(isSet('name', "'another'")), [])
  t.strictSame(await changedBy(() => sql`update users set deleted_at = now() where id = ${user.id}`), [
    user.id,
  ])
  t.strictSame(await changedBy(() => sql`update users set name = 'another' where id = ${user.id}`), [])
  t.strictSame(await changedBy(() => sql`delete from api_keys where id = ${key.id}`), [key.id])
  t.strictSame(await changedBy(() => sql`delete from users where id = ${user.id}`), [user.id])
  t.strictSame(await changedBy(created), [], 'nobody has a copy of a new key')
})

t.test('changes by the service are noted too', async (t) => {
  const { user, key } = await created()
  const second = await makeKey(user.id)
  t.strictSame(await changedBy(() => keys.revoke(key.id, user.id, actor())), [key.id])
  const all = [second.id, user.id].sort()
  t.strictSame(await changedBy(() => users.remove(user.id, actor())), all)
})

t.test('a change is learned of once it is committed, however late', async (t) => {
  const { key } = await created()
  const replies: string[] = [(await asked(null)).known]
  await sql.begin(async (slow) => {
    await slow`update api_keys set version = version + 1 where id = ${key.id}`
    for (let n = 0; n < 3; n++) {
      await created()
      const { changed, known } = await asked(replies.at(-1)!)
      t.strictSame(changed, [])
      replies.push(known)
      await pool.run(dropKeyChanges)
    }
  })
  t.strictSame((await asked(replies.at(-1)!)).changed, [key.id])
})

t.test('the first change after a reply is learned of too', async (t) => {
  const { key } = await created()
  const [epoch] = (await asked(null)).known.split(' ')
  await sql`update api_keys set version = version + 1 where id = ${key.id}`
  const [change] = await sql`select txid from key_changes where id = ${key.id}`
  // As if nothing else on this server had begun since, not even the report itself.
  t.strictSame((await asked(`${epoch} ${change!.txid}:${change!.txid}:`)).changed, [key.id])
})

t.test('changes are kept for as long as an instance asks about them', async (t) => {
  const { key } = await created()
  const { known } = await asked(null)
  await sql`update api_keys set version = version + 1 where id = ${key.id}`
  for (let n = 0; n < 2; n++) {
    await pool.run(dropKeyChanges)
    t.strictSame((await asked(known)).changed, [key.id])
  }
  let later = await asked(known)
  await until('nothing is kept', async () => {
    later = await asked(later.known)
    await pool.run(dropKeyChanges)
    return (await kept(key.id)) === 0
  })
  t.strictSame((await asked(later.known)).changed, [])
})

t.test('changes are kept for the instance that is furthest behind', async (t) => {
  const { key } = await created()
  const { known } = await asked(null, 'ins_behind')
  await sql`update api_keys set version = version + 1 where id = ${key.id}`
  await until('another one is past it', async () => {
    await asked((await asked(null)).known)
    const [row] = await sql`
      select txid_snapshot_xmin(changes_since) > (select txid from key_changes where id = ${key.id}) as is_past
      from instances where id = 'ins_1'`
    return row!.is_past
  })
  await pool.run(dropKeyChanges)
  t.strictSame((await asked(known, 'ins_behind')).changed, [key.id])
  await remove('ins_behind')
})

t.test('an instance that was silent for too long learns nothing', async (t) => {
  const { known } = await asked(null)
  t.strictSame((await asked(known)).changed, [])
  // Else nothing can have been deleted.
  await until('what was under way has ended', async () => {
    const [now] = await sql`
      select txid_snapshot_xmin(txid_current_snapshot())
        > txid_snapshot_xmin(${known.split(' ')[1]!}::text::txid_snapshot) as is_later`
    return now!.is_later
  })
  await sql`update instances set seen_at = now() - interval '6 minutes' where id = 'ins_1'`
  t.equal((await asked(known)).changed, null)
  const again = await asked(known)
  t.equal(again.changed, null, 'nor if it did not get that reply')
  t.strictSame((await asked(again.known)).changed, [], 'but the next time it does')
  for (let n = 0; n < 2; n++)
    t.equal((await asked(known, 'ins_new')).changed, null, 'nor does one that never reported')
  await remove('ins_new')
})

t.test(
  'after a silence, an instance is never told that nothing changed if changes were deleted',
  async (t) => {
    const { key } = await created()
    const { known } = await asked(null)
    await sql`update api_keys set version = version + 1 where id = ${key.id}`
    await until('it is deleted', async () => {
      await sql`update instances set seen_at = now() - interval '11 minutes'`
      await pool.run(dropKeyChanges)
      return (await kept(key.id)) === 0
    })
    for (let n = 0; n < 3; n++) t.equal((await asked(known)).changed, null, `report ${n + 1}`)
  },
)

t.test('no changes are kept for silent instances and other servers', async (t) => {
  const { key } = await created()
  await asked(null, 'ins_silent')
  await sql`update api_keys set version = version + 1 where id = ${key.id}`
  await sql`insert into key_changes values (9000000000000, ${key.id})`
  await sql`delete from instances where id <> 'ins_silent'`
  const keptAfter = async (minutes: number) => {
    await sql`update instances set seen_at = now() - make_interval(mins => ${minutes})`
    await pool.run(dropKeyChanges)
    return kept(key.id)
  }
  t.equal(await keptAfter(9), 1)
  await until('nothing is kept', async () => (await keptAfter(11)) === 0)
})

t.test('one call deletes 50,000 changes at most, so that none takes too long', async (t) => {
  await sql`insert into key_changes select 1, 'apk_' || n from generate_series(1, 50001) n`
  t.equal(await pool.run(dropKeyChanges), 50_000)
  t.ok((await pool.run(dropKeyChanges)) > 0)
})

t.test('more changes than an instance remembers are not listed', async (t) => {
  const { known } = await asked(null)
  const note = (first: number, last: number) =>
    sql`insert into key_changes select txid_current(), 'apk_' || n from generate_series(${first}::int, ${last}::int) n`
  await note(1, 10_000)
  t.equal((await asked(known)).changed!.length, 10_000)
  await note(10_000, 10_000)
  t.equal((await asked(known)).changed, null, 'not even if some are the same')
  const { known: later } = await asked(null)
  await note(1, 3)
  await note(3, 4)
  t.equal((await asked(later)).changed!.length, 4, 'each id once')
})

t.test('neither are those of a transaction that was under way at the last report', async (t) => {
  for (const [ids, listed] of [
    [10_000, 10_000],
    [10_001, undefined],
  ]) {
    let known = ''
    await sql.begin(async (slow) => {
      await slow`insert into key_changes
        select txid_current(), 'apk_' || n from generate_series(1, ${ids!}::int) n`
      known = (await asked(null)).known
    })
    t.equal((await asked(known)).changed?.length, listed)
  }
})

t.test('an emptied or restored table counts as that of another server', async (t) => {
  let { server } = await asked(null)
  for (const rewrite of ['truncate key_changes', 'vacuum full api_keys', 'vacuum full users']) {
    t.equal((await asked(null)).server, server)
    await sql.unsafe(rewrite)
    const after = await asked(null)
    t.not(after.server, server, rewrite)
    server = after.server
  }
})

t.test('replicated changes are noted, and after a crash everything is read again', async (t) => {
  const server = await startPrivatePostgres(t)
  await migrate(server.url)
  const pool = createPool({ url: server.url, purpose: 'test', max: 1, timeoutMs: 30_000 })
  t.teardown(() => pool.close())
  const { report } = createInstanceStore({ instances: pool, management: pool }, { outageTtlMs: 60_000 })
  const ask = async (since: string | null) =>
    (await report({ ...instance, id: 'ins_1' } as never, { fence: 0, since })).changes
  const first = await ask(null)
  const sql = openDatabase(t, server.url)
  await sql`insert into users (id, name) values ('usr_1', 'somebody')`
  await sql`set session_replication_role = replica`
  await sql`update users set deleted_at = now()`
  await sql`
    insert into api_keys (id, user_id, name, key_hash, key_prefix, rate_limit_rpm, hash_secret_id)
    values ('apk_1', 'usr_1', 'a key', sha256('a key'), 'lk_1234567', 1, '')`
  await sql`update api_keys set revoked_at = now()`
  const before = await ask(first.known)
  t.strictSame(before.changed!.sort(), ['apk_1', 'usr_1'])
  t.strictSame((await ask(before.known)).changed, [])

  const [backend] = await sql`select pg_backend_pid() as pid`
  process.kill(backend!.pid, 'SIGKILL')
  const after = await until('Postgres is back', () =>
    sql`select 1`.then(
      () => ask(before.known),
      () => null,
    ),
  )
  t.equal(after.changed, null, 'it may use numbers of transactions again')
  t.strictSame((await ask(after.known)).changed, [])

  // Its standby has the same files.
  await server.restart()
  const restarted = await until('Postgres is back', () => ask(after.known).catch(() => null))
  t.not(restarted.server, after.server, 'one that has just started may be its standby')
})
