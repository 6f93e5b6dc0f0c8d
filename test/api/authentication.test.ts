// Who is refused, and that the audit log alone says why (spec section 5).
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { RefusalReason } from '../../schemas/refusal.ts'
import { type Answer, deleteUser, makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { openDatabase } from './database.ts'
import { expectError } from './expect-error.ts'
import { sendRaw } from './raw-http.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const other = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl)
const { token: usable } = await makeCaller(instance)
const pastS = Math.floor(Date.now() / 1000) - 60

const verify = (token: string, { ask } = instance) => ask('GET', '/v1/verify', { token })

/** The one entry of a refusal, there by the time the client has its answer. */
async function auditOf(t: Test, answer: Answer) {
  const entries = await instance.service.stores.audit.find(answer.body.error.request_id)
  t.equal(entries.length, 1, 'one audit entry')
  t.match(entries[0], { id: /^aud_[0-9A-Za-z]+$/, request_id: answer.body.error.request_id, ip: '127.0.0.1' })
  return entries[0]!
}

async function expectRefused(t: Test, answer: Answer, ...reasons: RefusalReason[]) {
  expectError(t, answer, 'unauthorized')
  const entry = await auditOf(t, answer)
  t.ok(reasons.includes(entry.reason as RefusalReason), `${entry.reason} is ${reasons.join(' or ')}`)
  return entry
}

t.test('a request without the header is refused as missing_header', async (t) => {
  const answer = await instance.ask('GET', '/v1/verify', { headers: { 'user-agent': 'curious/1.0' } })
  const entry = await expectRefused(t, answer, 'missing_header')
  t.match(entry, {
    method: 'GET',
    path: '/v1/verify',
    user_agent: 'curious/1.0',
    key_id: null,
    user_id: null,
  })
})

/** What stands in for parts of a usable key, so that the names below are the same in every run. */
const parts: Record<string, string> = {
  '<key>': usable,
  '<rest>': usable.slice(3),
  '<all but one>': usable.slice(0, -1),
  '<another check digit>': usable.slice(0, -1) + (usable.endsWith('0') ? '1' : '0'),
  '<other case>': `lk_${usable.slice(3).replace(/[A-Za-z]/g, (letter) => (letter < 'a' ? letter.toLowerCase() : letter.toUpperCase()))}`,
  '<base64>': Buffer.from(`${usable}:`).toString('base64'),
  '<38 zeros>': '0'.repeat(38),
  '<38 é>': 'é'.repeat(38),
  '<10,000 nines>': '9'.repeat(10_000),
}
const headers: [header: string, ...reasons: RefusalReason[]][] = [
  ['Basic <base64>', 'wrong_scheme'],
  ['Basic sk_1234', 'wrong_scheme'],
  ['Token <key>', 'wrong_scheme'],
  ['bearer <key>', 'wrong_scheme'],
  ['BEARER <key>', 'wrong_scheme'],
  ['Bearer  <key>', 'wrong_scheme'],
  ['Bearer\t<key>', 'wrong_scheme'],
  ['Bearer<key>', 'wrong_scheme'],
  ['Bearer: <key>', 'wrong_scheme'],
  ['Bearer <key> <key>', 'wrong_scheme'],
  ['Bearer <key> more', 'wrong_scheme'],
  ['Bearer <key>, Bearer <key>', 'wrong_scheme'],
  ['<key>', 'wrong_scheme'],
  ['Bearer', 'wrong_scheme'],
  ['', 'missing_header', 'wrong_scheme'],
  ['Bearer "<key>"', 'wrong_scheme', 'wrong_prefix'],
  ['"Bearer <key>"', 'wrong_scheme'],
  ['Bearer sk_<rest>', 'wrong_prefix'],
  ['Bearer <rest>', 'wrong_prefix'],
  ['Bearer LK_<rest>', 'wrong_prefix'],
  ['Bearer lk-<rest>', 'wrong_prefix'],
  ['Bearer x<key>', 'wrong_prefix'],
  ['Bearer lk', 'wrong_prefix'],
  ['Bearer lk_', 'unknown_key'],
  ['Bearer <key>0', 'unknown_key'],
  ['Bearer <all but one>', 'unknown_key'],
  ['Bearer <another check digit>', 'unknown_key'],
  ['Bearer <other case>', 'unknown_key'],
  ['Bearer lk_<38 zeros>', 'unknown_key'],
  ['Bearer lk_<10,000 nines>', 'unknown_key'],
  ['Bearer lk_<38 é>', 'unknown_key', 'wrong_scheme'],
]
for (const [header, ...reasons] of headers) {
  t.test(`the header ${JSON.stringify(header)} is refused as ${reasons.join(' or ')}`, async (t) => {
    const value = header.replace(/<[^>]+>/g, (part) => parts[part]!)
    const answer = await sendRaw(instance.port, 'GET', '/v1/verify', [`Authorization: ${value}`])
    const entry = await expectRefused(t, answer, ...reasons)
    t.match(entry, { key_id: null, user_id: null })
  })
}

t.test('two Authorization headers are refused, whichever would do alone', async (t) => {
  const good = `Authorization: Bearer ${usable}`
  for (const pair of [
    [good, good],
    [good, 'Authorization: Bearer lk_x'],
    ['Authorization: Basic eA==', good],
    [good, `AUTHORIZATION: Bearer ${usable}`],
  ]) {
    const answer = await sendRaw(instance.port, 'GET', '/v1/verify', pair)
    await expectRefused(t, answer, 'missing_header', 'wrong_scheme', 'wrong_prefix', 'unknown_key')
  }
})

// On one database: it is the secret alone that makes it unknown.
t.test('a key minted under another HASH_SECRET is refused as unknown_key', async (t) => {
  const env = { HASH_SECRET: 'another environment, with a secret of its own', ACCEPT_NEW_HASH_SECRET: '1' }
  const elsewhere = await startInstance(t, services, env)
  const { token } = await makeCaller(elsewhere)
  t.equal((await verify(token, elsewhere)).status, 200)
  await expectRefused(t, await verify(token), 'unknown_key')
})

t.test('a revoked key is refused as revoked, and the entry says whose it was', async (t) => {
  const caller = await makeCaller(instance)
  const made = await makeKey(instance, { userId: caller.userId })
  await instance.ask('DELETE', `/v1/keys/${made.id}`, { token: caller.token })
  const entry = await expectRefused(t, await verify(made.token), 'revoked')
  t.match(entry, { key_id: made.id, user_id: caller.userId })
})

t.test('an expired key is refused as expired, and the entry says whose it was', async (t) => {
  const { id, token, userId } = await makeCaller(instance, { expiresAt: pastS })
  const entry = await expectRefused(t, await verify(token), 'expired')
  t.match(entry, { key_id: id, user_id: userId })
})

t.test(
  'every key of a deleted user is refused as owner_deleted by every instance that had it cached',
  async (t) => {
    const { id, token, userId } = await makeCaller(instance)
    const second = await makeKey(instance, { userId })
    for (const one of [instance, other]) t.equal((await verify(token, one)).status, 200)
    await deleteUser(instance, userId)
    for (const one of [other, instance]) {
      const entry = await expectRefused(t, await verify(token, one), 'owner_deleted')
      t.match(entry, { key_id: id, user_id: userId })
      await expectRefused(t, await verify(second.token, one), 'owner_deleted')
    }
  },
)

t.test(
  'a key with several faults is refused for the first in the order revoked, expired, owner_deleted',
  async (t) => {
    const faults = async (wanted: { revoked: boolean; expired: boolean }) => {
      const { id, token, userId } = await makeCaller(instance, { expiresAt: wanted.expired ? pastS : null })
      if (wanted.revoked) await sql`update api_keys set revoked_at = now() where id = ${id}`
      await deleteUser(instance, userId)
      return token
    }
    await expectRefused(t, await verify(await faults({ revoked: true, expired: true })), 'revoked')
    await expectRefused(t, await verify(await faults({ revoked: true, expired: false })), 'revoked')
    await expectRefused(t, await verify(await faults({ revoked: false, expired: true })), 'expired')
  },
)

/** A key that has been used, and expires as soon as the machine is quick enough for that. */
async function expiringSoon() {
  for (let inS = 2; ; inS *= 2) {
    const expiresAt = Math.floor(Date.now() / 1000) + inS
    const { token } = await makeCaller(instance, { expiresAt })
    const { status } = await verify(token)
    if (status === 200) return { token, expiresAt }
  }
}

t.test('a key that is in use is refused from the second of its expiry on', async (t) => {
  const { token, expiresAt } = await expiringSoon()
  for (;;) {
    const begunMs = Date.now()
    const answer = await verify(token)
    if (answer.status === 401) {
      t.ok(Date.now() >= expiresAt * 1000, 'not before')
      await expectRefused(t, answer, 'expired')
      break
    }
    // Slack for a database clock that is another's.
    if (begunMs > expiresAt * 1000 + 50) {
      t.fail(`admitted ${begunMs - expiresAt * 1000} ms after its expiry`)
      break
    }
    await pause(20)
  }
})

t.test('every refusal of many at once has its own entry', async (t) => {
  const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => verify(`lk_${i}`)))
  const ids = answers.map(({ body }) => body.error.request_id)
  t.equal(new Set(ids).size, 100)
  const entries = await Promise.all(ids.map((id) => instance.service.stores.audit.find(id)))
  t.same(new Set(entries.map((found) => found.map(({ reason }) => reason).join())), new Set(['unknown_key']))
})

t.test(
  'behind a trusted proxy the entry has the address that it gives, or its own where that is none',
  async (t) => {
    const behind = await startInstance(t, services, { TRUST_PROXY: '1' })
    const ipFor = async (forwardedFor: string) => {
      const answer = await behind.ask('GET', '/v1/verify', { headers: { 'x-forwarded-for': forwardedFor } })
      const [entry] = await behind.service.stores.audit.find(answer.body.error.request_id)
      return entry!.ip
    }
    t.equal(await ipFor('203.0.113.7'), '203.0.113.7')
    t.equal(
      await ipFor('198.51.100.1, 203.0.113.7'),
      '203.0.113.7',
      'what the client wrote itself is not believed',
    )
    t.equal(await ipFor('fe80::1%eth0'), 'fe80::1%eth0')
    for (const none of ['nobody', '203.0.113.7:443', `fe80::1%${'a'.repeat(5000)}`])
      t.equal(await ipFor(none), '127.0.0.1')
  },
)
