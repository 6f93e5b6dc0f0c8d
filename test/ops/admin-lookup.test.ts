// What an operator learns about whatever a person who asks for help has sent; a whole key leaves no trace.
import t from 'tap'
import { newId } from '../../src/rules/id.ts'
import { expectError } from '../api/expect-error.ts'
import { nowS } from '../api/values.ts'
import { deleteUser, hashSecret, makeKey, makeUser, startInstance, startOps } from '../instance.ts'
import { ada, startAdmin, verify } from './admin.ts'

const { services, instance, sql, admin } = await startAdmin(t, { LOG_LEVEL: 'trace' })
const lookUp = (query: unknown) => admin('POST', 'lookup', { query })
const { tokenFormat } = instance.service.stores

t.test(
  'a key is found by itself, its beginning and its id, with its state, owner and refusals',
  async (t) => {
    const owner = (await admin('POST', 'users', { name: 'Ada', external_id: 'crm-7' })).body
    const key = await makeKey(instance, { userId: owner.id })
    await makeKey(instance, { userId: owner.id })
    const found = await lookUp(key.token)
    t.equal(found.status, 200)
    const { counters } = found.body
    t.strictSame(found.body, {
      type: 'key',
      state: 'active',
      key: (await admin('GET', `keys/${key.id}`)).body,
      user: owner,
      counters,
      refusals: [],
    })
    // A minute may turn meanwhile.
    for (const query of [
      key.key_prefix,
      key.id,
      ` ${key.token} `,
      `${key.token}\r\n`,
      `\t${key.id}\n`,
      `Bearer ${key.token}`,
      `authorization: bearer  ${key.token}\n`,
      `Authorization:Bearer ${key.token}`,
      `"${key.token}"`,
      `curl -H 'Authorization: Bearer ${key.token}' localhost`,
      `\n\ncurl localhost \\\r\n\t-H 'Authorization: Bearer ${key.token}' \\\n  -v\n`,
      `curl localhost -H 'Cookie: ${'c'.repeat(6000)}' -H 'Authorization: Bearer ${key.token}'`,
      key.token.slice(3),
      `curl -H 'Authorization: Bearer ${key.token.slice(0, 20)}\n    ${key.token.slice(20)}' localhost`,
      `${key.token.slice(3, 30)} ${key.token.slice(30)}`,
    ])
      t.strictSame({ ...(await lookUp(query)).body, counters }, found.body, query.slice(0, 12))

    await verify(instance, key.token)
    t.ok(Math.abs((await lookUp(key.id)).body.key.last_used_at - nowS()) <= 5, 'with its last use')
    await admin('DELETE', `keys/${key.id}`)
    const refused = []
    for (let n = 0; n < 12; n++)
      refused.unshift(await instance.ask('GET', '/v1/verify', { token: key.token }))
    const { body } = await lookUp(key.token)
    t.equal(body.state, 'revoked')
    t.strictSame(
      body.refusals.map((entry: Record<string, unknown>) => [entry.reason, entry.request_id]),
      refused.slice(0, 10).map(({ headers }) => ['revoked', headers.get('x-request-id')]),
    )
  },
)

t.test('the state is why the key would be refused', async (t) => {
  const { id: userId } = await makeUser(instance)
  const [expired, ownerless] = [
    await makeKey(instance, { userId, expiresAt: nowS() - 5 }),
    await makeKey(instance, { userId, expiresAt: nowS() + 1800 }),
  ]
  t.equal((await lookUp(expired.token)).body.state, 'expired')
  const realNow = Date.now
  for (const aheadMs of [-3_600_000, 3_600_000]) {
    t.intercept(Date, 'now', { value: () => realNow() + aheadMs })
    t.equal((await lookUp(expired.token)).body.state, 'expired', 'by the clock of the database')
    t.equal((await lookUp(ownerless.token)).body.state, 'active')
  }
  await deleteUser(instance, userId)
  t.equal((await lookUp(expired.token)).body.state, 'expired', 'also of a deleted owner')
  t.match((await lookUp(ownerless.token)).body, {
    state: 'owner_deleted',
    user: { id: userId, deleted_at: Number },
  })
})

t.test('keys that begin alike are all shown, newest first, at most ten', async (t) => {
  const { id: userId } = await makeUser(instance)
  const ids: string[] = []
  for (let n = 0; n < 12; n++) ids.unshift((await makeKey(instance, { userId })).id)
  await sql`update api_keys set key_prefix = 'lk_Alike00' where user_id = ${userId}`
  const { body } = await lookUp('lk_Alike00')
  t.strictSame(Object.keys(body), ['type', 'keys'])
  t.equal(body.type, 'keys')
  t.strictSame(
    body.keys.map(({ id }: { id: string }) => id),
    ids.slice(0, 10),
  )
  t.strictSame(body.keys[0], (await admin('GET', `keys/${ids[0]}`)).body)
})

t.test('a user is found by id and by external_id, whatever that looks like', async (t) => {
  for (const external_id of [
    '42',
    'Bearer 42',
    'crm/ünï 7',
    'usr_of_another_system',
    'apk_1',
    'req_1',
    'lk_Unknown',
    'lk_',
    'lk_customer_42',
    'lk_550e8400e29b41d4a716446655440000ünï',
    ' padded ',
    'x'.repeat(255),
    'Zq8hT0aPLb5wXk3RdYc2VnJm7GfUs1Ei',
    'not padded',
  ]) {
    const user = (await admin('POST', 'users', { name: 'x', external_id })).body
    t.strictSame(
      (await lookUp(external_id)).body,
      { type: 'user', state: 'active', user, refusals: [] },
      external_id,
    )
    t.strictSame((await lookUp(user.id)).body.user, user)
  }
  for (const query of [' not padded ', `not padded${' '.repeat(300)}`])
    t.match((await lookUp(query)).body, { user: { external_id: 'not padded' } })
  expectError(t, await lookUp('padded'), 'not_found', 'query')
  const { id: userId } = await makeUser(instance)
  const { token, id: keyId } = await makeKey(instance, { userId })
  await deleteUser(instance, userId)
  t.equal(await verify(instance, token), 401)
  t.match((await lookUp(userId)).body, {
    state: 'deleted',
    refusals: [{ event: 'auth.refused', reason: 'owner_deleted', key_id: keyId }],
  })
})

t.test('a request is found with what it did or why it was refused, its key and owner', async (t) => {
  const { id: userId } = await makeUser(instance)
  const { id, token } = await makeKey(instance, { userId })
  const idOf = ({ headers }: { headers: Headers }) => headers.get('x-request-id')!
  const revoked = idOf(await admin('DELETE', `keys/${id}`))
  const refused = idOf(await instance.ask('GET', '/v1/verify', { token }))
  const nobodys = idOf(await instance.ask('GET', '/v1/verify', { token: `${token}x` }))
  const renamed = idOf(await admin('PATCH', `users/${userId}`, { name: 'y' }))
  const known = { type: 'request', state: 'revoked', key: { id }, user: { id: userId } }
  t.match((await lookUp(revoked)).body, {
    ...known,
    entries: [{ event: 'key.revoked', actor: 'operator:ada' }],
  })
  t.match((await lookUp(refused)).body, { ...known, entries: [{ event: 'auth.refused', reason: 'revoked' }] })
  const unknown = (await lookUp(nobodys)).body
  t.strictSame(Object.keys(unknown), ['type', 'entries', 'has_more'])
  t.match(unknown.entries, [{ reason: 'unknown_key', key_id: null }])
  t.match((await lookUp(renamed)).body, {
    type: 'request',
    user: { id: userId },
    entries: [{ event: 'user.updated' }],
  })
})

t.test('a request about several keys names none, and says when there are more entries', async (t) => {
  const { id: userId } = await makeUser(instance)
  const made = await Promise.all(Array.from({ length: 11 }, () => makeKey(instance, { userId })))
  const revoke = async (count: number) => {
    const text = made
      .splice(0, count)
      .map(({ token }) => token)
      .join(' ')
    const { headers } = await admin('POST', 'keys/scan', { text, revoke: true })
    return (await lookUp(headers.get('x-request-id')!)).body
  }
  const ten = await revoke(10)
  t.strictSame(Object.keys(ten), ['type', 'user', 'entries', 'has_more'])
  t.match(ten, { user: { id: userId }, entries: { length: 10 }, has_more: false })
  t.match(await revoke(1), { key: { user_id: userId }, has_more: false })
  made.push(...(await Promise.all(Array.from({ length: 11 }, () => makeKey(instance, { userId })))))
  t.match(await revoke(11), { entries: { length: 10 }, has_more: true })
})

t.test('a request of an application is found by the id that it was given there', async (t) => {
  const refusal = { method: 'GET', path: '/', ip: null, userAgent: null, keyId: null, userId: null }
  const requestId = 'trace-1234/5'
  await instance.service.stores.audit.recordRefusals([
    { ...refusal, requestId, reason: 'missing_header', details: null },
  ])
  t.match((await lookUp(requestId)).body, { type: 'request', entries: [{ reason: 'missing_header' }] })
  const { body } = await admin('GET', `audit?request_id=${encodeURIComponent(requestId)}`)
  t.match(body.data, [{ request_id: requestId }])
})

t.test('what is nothing here is the 404, and what cannot be anything is refused by name', async (t) => {
  const key = tokenFormat.mint()
  const { token } = await makeKey(instance, { userId: (await makeUser(instance)).id })
  const mistyped = `${token.slice(0, -1)}${token.endsWith('0') ? '1' : '0'}`
  for (const query of [
    key,
    mistyped,
    token.slice(0, 20),
    'lk_Nothing',
    newId('apk_'),
    newId('usr_'),
    newId('req_'),
    '%',
    "'",
    'a\nb',
    'x'.repeat(256),
  ])
    expectError(t, await lookUp(query), 'not_found', 'query')
  t.match((await lookUp(key)).body.error.suggestion, 'belongs to this environment')
  for (const bad of [
    '',
    ' ',
    '\n\t',
    'a\u0000b',
    'a\n\u0085b',
    '\u0000a',
    'a\ud800',
    'x'.repeat(8193),
    5,
    null,
    [],
    {},
  ])
    expectError(t, await lookUp(bad), 'invalid_parameter', 'query')
  expectError(t, await admin('POST', 'lookup', {}), 'missing_parameter', 'query')
  expectError(
    t,
    await admin('POST', 'lookup', { query: 'x', [token]: 1 }),
    'unknown_parameter',
    'lk_[redacted]',
  )
  expectError(t, await admin('GET', `lookup?query=${token}`), 'method_not_allowed')
})

t.test('a key still stored under the previous secret is found too', async (t) => {
  const { token, id } = await makeKey(instance, { userId: (await makeUser(instance)).id })
  const rotated = await startInstance(t, services, {
    OPS_TOKEN: ada,
    HASH_SECRET: 'another secret of the tests, thirty-two at least',
    HASH_SECRET_PREVIOUS: hashSecret,
  })
  const ops = await startOps(t, rotated)
  t.match((await ops.ask('POST', '/admin/lookup', { token: ada, json: { query: token } })).body, {
    key: { id },
  })
})

t.test('a key that was looked up, or nearly one, is in no table, log line or statement', async (t) => {
  const { token } = await makeKey(instance, { userId: (await makeUser(instance)).id })
  const { keys, users, audit } = instance.service.stores
  const calls = [
    t.capture(keys, 'get', keys.get),
    t.capture(keys, 'list', keys.list),
    t.capture(keys, 'getByHash', keys.getByHash),
    t.capture(users, 'get', users.get),
    t.capture(users, 'list', users.list),
    t.capture(audit, 'list', audit.list),
  ]
  const asked = [
    token,
    `${token}0`,
    `key ${token}`,
    `Bearer ${token}`,
    `Bearer ${token.slice(3)}`,
    token.slice(3),
    token.slice(4),
    token.slice(3, -1),
    ...['LK_', 'Lk_', '_', 'lk-', 'lk ', 'sk_', 'lk_\u200b'].map((start) => start + token.slice(3)),
    `req_${token}`,
    `lk_${'Z'.repeat(38)}`,
    token.slice(0, 20),
    [...token.slice(0, 20)].map((character) => `%${character.charCodeAt(0).toString(16)}`).join(''),
  ]
  for (const query of asked) await lookUp(query)
  const sent = calls.flatMap((results) => results().map(({ args }) => args))
  const tables = ['users', 'api_keys', 'audit_log']
  const rows = await Promise.all(
    tables.map((table) => sql.unsafe(`select ${table}::text as row from ${table}`)),
  )
  t.ok(sent.length > 0 && instance.log.length > 0)
  const everything = JSON.stringify([rows, instance.log, sent])
  for (const query of asked) t.notOk(everything.includes(query.slice(4, 18)), `${query.slice(0, 6)}…`)
})
