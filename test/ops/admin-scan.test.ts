// Leaked keys: found in a text, said to be live or not, and revoked everywhere if asked for.
import t from 'tap'
import { collectLeaks } from '../../src/ops/admin/leaked-keys.ts'
import { expectError } from '../api/expect-error.ts'
import { nowS } from '../api/values.ts'
import { hashSecret, makeCaller, startInstance } from '../instance.ts'
import { startAdmin, verify } from './admin.ts'

const { services, instance, sql, admin, entriesOf, keysInEachState, startOther, untilConfirmed } =
  await startAdmin(t, {
    LOG_LEVEL: 'trace',
  })
const other = await startOther()
const { mint } = instance.service.stores.tokenFormat
const scan = (text: string, more: object = {}) => admin('POST', 'keys/scan', { text, ...more })

t.test('a scan names the keys in a text and changes nothing', async (t) => {
  const { active, revoked, expired, ownerless } = await keysInEachState()
  const strange = mint()
  const tokens = [active, revoked, expired, ownerless, active].map(({ token }) => token)
  const found = await scan(`${tokens.join('\n')} ${strange} ${strange}`)
  t.equal(found.status, 200)
  const leak = ({ id, key_prefix, userId: user_id }: typeof active, state: string) => ({
    ...{ id, key_prefix, user_id, state, revoked: false },
  })
  const keys = [
    leak(active, 'active'),
    leak(revoked, 'revoked'),
    leak(expired, 'expired'),
    leak(ownerless, 'owner_deleted'),
  ]
  t.same(new Set(found.body.keys.map(JSON.stringify)), new Set(keys.map((key) => JSON.stringify(key))))
  t.equal(found.body.unknown, 1)
  t.equal(await verify(other, active.token), 200)
  t.strictSame([...(await entriesOf(found))], [])
  t.same((await scan('nothing here')).body, { keys: [], unknown: 0 })
})

t.test('of a server that takes no writes, what it lacks may be a key, so nothing is said', async (t) => {
  const [one, two] = [await makeCaller(instance), await makeCaller(instance)]
  const text = `${one.token} ${two.token}`
  const { keys } = instance.service.stores
  const find = keys.findByHash
  t.teardown(() => {
    keys.findByHash = find
  })
  for (const role of ['standby', 'read_only'] as const) {
    keys.findByHash = async (hashes) => {
      const { found, ...rest } = await find(hashes)
      return { ...rest, found: found.slice(1), role }
    }
    expectError(t, await scan(text, { revoke: true }), 'service_unavailable')
    keys.findByHash = async (hashes) => ({ ...(await find(hashes)), role })
    t.equal((await scan(text)).body.keys.length, 2, role)
  }
  keys.findByHash = find
  for (const { token } of [one, two]) t.equal(await verify(instance, token), 200)
})

t.test('a leaked key still stored under the previous secret is found too', async (t) => {
  const { id, token } = await makeCaller(instance)
  const rotated = await startInstance(t, services, {
    HASH_SECRET: 'another secret of the tests, thirty-two at least',
    HASH_SECRET_PREVIOUS: hashSecret,
  })
  const leaks = collectLeaks(rotated.service.stores, null)
  await leaks.add([token])
  t.match(leaks.result(), { keys: [{ id, state: 'active' }], unknown: 0 })
})

t.test('whether a leaked key has expired is by the clock of the database', async (t) => {
  const { token } = await makeCaller(instance, { expiresAt: nowS() + 1800 })
  const realNow = Date.now
  t.intercept(Date, 'now', { value: () => realNow() + 3_600_000 })
  t.match((await scan(token)).body.keys, [{ state: 'active' }])
})

t.test('with `revoke`, every instance refuses what was found when the answer comes', async (t) => {
  const leaked = await Promise.all(Array.from({ length: 20 }, () => makeCaller(instance)))
  for (const { token } of leaked) t.equal(await verify(other, token), 200)
  const answer = await scan(leaked.map(({ token }) => token).join(' '), { revoke: true })
  for (const { token } of leaked) t.equal(await verify(other, token), 401)
  t.equal(answer.body.keys.length, 20)
  for (const key of answer.body.keys) t.match(key, { state: 'revoked', revoked: true })
  const entries = await entriesOf(answer)
  t.equal(entries.length, 20)
  for (const entry of entries)
    t.match(entry, { event: 'key.revoked', actor: 'operator:ada', path: '/admin/keys/scan' })
  const again = await scan(leaked[0]!.token, { revoke: true })
  t.match(again.body.keys, [{ state: 'revoked', revoked: false }])
})

t.test('a key whose revocation was lost on its way to the others is revoked again', async (t) => {
  const { id, token } = await makeCaller(instance)
  t.equal(await verify(other, token), 200)
  await untilConfirmed(id)
  const revokedAgo = (seconds: number) => sql`
    update api_keys set revoked_at = now() - make_interval(secs => ${seconds}), version = version + 1
    where id = ${id}`
  const found = [{ state: 'revoked', revoked: false }]
  await revokedAgo(660)
  t.match((await scan(token, { revoke: true })).body.keys, found)
  t.equal(await verify(other, token), 200, 'not if that was long ago: no copy is that old')
  await revokedAgo(540)
  t.equal(await verify(other, token), 200, 'which nobody knows yet')
  t.match((await scan(token, { revoke: true })).body.keys, found)
  t.equal(await verify(other, token), 401)
})

t.test(
  'an expired key and one of a deleted user are revoked too: others may not have heard of it',
  async (t) => {
    const [expired, ownerless] = [await makeCaller(instance), await makeCaller(instance)]
    for (const { id, token } of [expired, ownerless]) {
      t.equal(await verify(other, token), 200)
      await untilConfirmed(id)
    }
    await sql`update api_keys set expires_at = now(), version = version + 1 where id = ${expired.id}`
    await sql`update users set deleted_at = now() where id = ${ownerless.userId}`
    const { body } = await scan(`${expired.token} ${ownerless.token}`, { revoke: true })
    for (const key of body.keys) t.match(key, { state: 'revoked', revoked: true })
    for (const { token } of [expired, ownerless]) t.equal(await verify(other, token), 401)
  },
)

t.test('a key that cannot be revoked keeps no other one alive', async (t) => {
  const leaked = await Promise.all(Array.from({ length: 40 }, () => makeCaller(instance)))
  const stuck = leaked[3]!
  await sql`alter table api_keys add constraint one_is_stuck check (id <> ${sql.unsafe(`'${stuck.id}'`)} or revoked_at is null)`
  t.teardown(() => sql`alter table api_keys drop constraint if exists one_is_stuck`)
  const answer = await scan(leaked.map(({ token }) => token).join(' '), { revoke: true })
  t.ok(answer.status >= 500)
  for (const { token } of leaked) t.equal(await verify(other, token), token === stuck.token ? 200 : 401)
})

t.test('at most 32 keys are revoked at once, so that none waits too long for a connection', async (t) => {
  const leaked = await Promise.all(Array.from({ length: 40 }, () => makeCaller(instance)))
  const { keys } = instance.service.stores
  const { revoke } = keys
  let underWay = 0
  let most = 0
  t.intercept(keys, 'revoke', {
    value: async (...asked: Parameters<typeof revoke>) => {
      most = Math.max(most, ++underWay)
      return revoke(...asked).finally(() => underWay--)
    },
  })
  const { body } = await scan(leaked.map(({ token }) => token).join(' '), { revoke: true })
  t.strictSame([body.keys.length, most], [40, 32])
})

t.test('a text of a megabyte with more keys than one statement looks up is scanned whole', async (t) => {
  const { id, token } = await makeCaller(instance)
  const made = Array.from({ length: 1200 }, mint)
  const text = `${'é'.repeat(500_000)}${made.join('"')}${token}`
  const { status, body } = await scan(text.padEnd(1_048_576, '\u0001'))
  t.equal(status, 200)
  t.match(body, { keys: [{ id }], unknown: 1200 })
  expectError(t, await scan('x'.repeat(1_048_577)), 'invalid_parameter', 'text')
})

t.test('of unknown tokens, only the first 100,000 are remembered', async (t) => {
  const leaks = collectLeaks(instance.service.stores, null)
  const made = Array.from({ length: 100_001 }, (_, i) => `made-up-${i}`)
  await leaks.add(made)
  await leaks.add(made.slice(-2))
  t.equal(leaks.result().unknown, 100_002, 'the last one counts again')
})

t.test('what is scanned is left nowhere', async (t) => {
  const { token } = await makeCaller(instance)
  for (const body of [
    { text: token },
    { text: `${token} `, revoke: 'yes' },
    { [token]: token },
    { text: [token] },
  ])
    await admin('POST', 'keys/scan', body)
  t.ok(instance.log.length > 0)
  t.notMatch(JSON.stringify(instance.log), token.slice(10))
})
