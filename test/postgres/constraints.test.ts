// What the database itself refuses. For each CHECK constraint there are rows that break only that
// one.
import t from 'tap'
import { openStores } from './open-stores.ts'

const { sql, makeUser, makeKey } = await openStores(t)
const user = await makeUser()
const hash = Buffer.alloc(32, 7)

const insertUser = (row: object) => sql`insert into users ${sql({ id: 'usr_1', name: 'x', ...row })}`
const insertKey = (row: object) => sql`
  insert into api_keys ${sql({ id: 'apk_1', user_id: user.id, name: 'x', key_hash: hash, hash_secret_id: 'x', key_prefix: 'lk_1234567', ...row })}`
const insertEntry = (row: object) => sql`
  insert into audit_log ${sql({ id: 'aud_1', request_id: 'req_1', event: 'key.created', ...row })}`

const breaks: Record<string, (() => PromiseLike<unknown>)[]> = {
  user_ids_begin_with_usr: [
    () => insertUser({ id: 'apk_1' }),
    () => insertUser({ id: 'usrx1' }),
    () => insertUser({ id: '' }),
  ],
  user_name_is_not_blank: [() => insertUser({ name: '' }), () => insertUser({ name: ' \t\n' })],
  external_id_is_not_blank: [() => insertUser({ external_id: '' }), () => insertUser({ external_id: '  ' })],
  external_id_has_at_most_255_characters: [() => insertUser({ external_id: '🗝'.repeat(256) })],
  external_id_has_no_control_characters: ['\n', '\u0001', '\u007f', '\u009f'].map(
    (control) => () => insertUser({ external_id: `x${control}` }),
  ),
  key_ids_begin_with_apk: [() => insertKey({ id: 'usr_1' }), () => insertKey({ id: 'apkx1' })],
  key_name_is_not_blank: [() => insertKey({ name: '' }), () => insertKey({ name: '  ' })],
  key_name_has_at_most_255_characters: [() => insertKey({ name: '🗝'.repeat(256) })],
  key_hash_is_an_hmac_sha256: [
    () => insertKey({ key_hash: Buffer.alloc(31) }),
    () => insertKey({ key_hash: Buffer.alloc(33) }),
    () => insertKey({ key_hash: Buffer.alloc(0) }),
  ],
  rate_limit_rpm_is_positive: [
    () => insertKey({ rate_limit_rpm: 0 }),
    () => insertKey({ rate_limit_rpm: -1 }),
  ],
  rate_limit_rpm_is_at_most_a_billion: [() => insertKey({ rate_limit_rpm: 1_000_000_001 })],
  version_is_positive: [() => insertKey({ version: 0 })],
  a_successor_is_another_key: [() => insertKey({ successor_id: 'apk_1' })],
  audit_ids_begin_with_aud: [() => insertEntry({ id: 'apk_1' }), () => insertEntry({ id: 'audx1' })],
  only_refusals_have_a_reason: [
    () => insertEntry({ event: 'auth.refused' }),
    () => insertEntry({ event: 'operator.refused' }),
    () => insertEntry({ event: 'key.created', reason: 'revoked' }),
  ],
}

for (const [name, rows] of Object.entries(breaks)) {
  t.test(`the database checks that ${name.replaceAll('_', ' ')}`, async (t) => {
    for (const row of rows) await t.rejects(Promise.resolve(row()), { code: '23514', constraint_name: name })
  })
}

t.test('every CHECK constraint is named as a sentence and has a row here that breaks it', async (t) => {
  const rows = await sql`
    select conname from pg_constraint
    where contype = 'c' and conrelid in ('users'::regclass, 'api_keys'::regclass, 'audit_log'::regclass) order by 1`
  t.strictSame(
    rows.map(({ conname }) => conname),
    Object.keys(breaks).sort(),
  )
  for (const { conname } of rows) t.match(conname, /_(is|are|has|have|begin|must)_/)
})

t.test('rows at the limits of the constraints are accepted', async (t) => {
  await insertUser({ id: 'usr_at_the_edge', external_id: '🗝'.repeat(255) })
  await insertKey({ id: 'apk_most', name: '🗝'.repeat(255), rate_limit_rpm: 1_000_000_000 })
  await insertKey({ id: 'apk_least', name: 'x', rate_limit_rpm: 1, key_hash: Buffer.alloc(32, 8) })
  await insertEntry({ event: 'auth.refused', reason: 'revoked' })
  t.equal((await sql`select 1 from api_keys where id in ('apk_most', 'apk_least')`).length, 2)
})

t.test('no two keys share a hash or a successor, and every key has an owner', async (t) => {
  const { id, hash } = await makeKey(user.id)
  const again = insertKey({ id: 'apk_again', key_hash: Buffer.from(hash, 'hex') })
  await t.rejects(Promise.resolve(again), { code: '23505' })
  const replaced = (n: number) =>
    insertKey({ id: `apk_replaced_${n}`, key_hash: Buffer.alloc(32, 10 + n), successor_id: id })
  await replaced(1)
  await t.rejects(Promise.resolve(replaced(2)), { code: '23505', constraint_name: 'api_keys_by_successor' })
  await t.rejects(Promise.resolve(insertKey({ user_id: 'usr_nobody', key_hash: Buffer.alloc(32, 9) })), {
    code: '23503',
  })
  await t.rejects(Promise.resolve(sql`delete from users where id = ${user.id}`), { code: '23503' })
})
