// The audit log in Postgres: refusals kept in batches, found by request, listed by what an operator asks for.
import t from 'tap'
import { type RefusalReason, refusalReasons } from '../../schemas/refusal.ts'
import { newId } from '../../src/rules/id.ts'
import type { RefusalRecord } from '../../src/stores.ts'
import { useServices } from '../services/index.ts'
import { openStores } from './open-stores.ts'

const services = await useServices(t)
const { audit, sql } = await openStores(t, services)

const refusal = (more: Partial<RefusalRecord> = {}): RefusalRecord => ({
  requestId: newId('req_'),
  reason: 'unknown_key',
  keyId: null,
  userId: null,
  method: 'GET',
  path: '/v1/verify',
  ip: '192.0.2.7',
  userAgent: 'curl/8',
  ...more,
})

t.test('a refusal is committed when it has been recorded', async (t) => {
  const one = refusal()
  await audit.recordRefusals([one])
  const rows = await sql`select request_id from audit_log where request_id = ${one.requestId}`
  t.equal(rows.length, 1, 'another connection sees it')
})

t.test('an entry is found by its request with all that is known of it', async (t) => {
  const [keyId, userId] = [newId('apk_'), newId('usr_')]
  const one = refusal({ reason: 'revoked', keyId, userId })
  const beforeMs = Date.now()
  await audit.recordRefusals([refusal(), one, refusal()])
  const [entry, ...others] = await audit.find(one.requestId)
  t.strictSame(others, [])
  const { id, occurred_at, ...rest } = entry!
  t.match(id, /^aud_[0-9a-z]+$/)
  t.match(occurred_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  t.ok(Math.abs(Date.parse(occurred_at) - beforeMs) < 60_000)
  t.strictSame(rest, {
    request_id: one.requestId,
    event: 'auth.refused',
    reason: 'revoked',
    key_id: keyId,
    user_id: userId,
    actor: null,
    method: 'GET',
    path: '/v1/verify',
    ip: '192.0.2.7',
    user_agent: 'curl/8',
    details: null,
  })
  t.strictSame(await audit.find(newId('req_')), [])
})

t.test('a batch keeps every refusal of it, and two batches at once keep all of both', async (t) => {
  const batches = [0, 1, 2].map(() => Array.from({ length: 1000 }, () => refusal({ path: '/batch' })))
  await Promise.all(batches.map((batch) => audit.recordRefusals(batch)))
  const rows = await sql`select id, request_id from audit_log where path = '/batch'`
  t.equal(new Set(rows.map(({ id }) => id)).size, 3000)
  t.strictSame(
    rows.map(({ request_id }) => request_id).sort(),
    batches
      .flat()
      .map(({ requestId }) => requestId)
      .sort(),
  )
  await audit.recordRefusals([])
})

t.test('whatever a client may write is kept as it is', async (t) => {
  const texts = [
    `'); drop table audit_log; --`,
    '"\\u0041\\',
    '{"a":1}',
    'null',
    '',
    '\u00ff\u0080',
    '✓ 🗝',
    '\t',
  ]
  const kept = texts.map((text) => refusal({ path: text, userAgent: text, method: text, ip: text }))
  await audit.recordRefusals(kept)
  for (const { requestId, path, userAgent, method, ip } of kept) {
    t.match(await audit.find(requestId), [{ path, user_agent: userAgent, method, ip }])
  }
  const unknown = refusal({ path: null, userAgent: null, method: null, ip: null })
  await audit.recordRefusals([unknown])
  t.match(await audit.find(unknown.requestId), [{ path: null, user_agent: null, method: null, ip: null }])
})

t.test('every reason there is can be kept', async (t) => {
  const ones = refusalReasons.map((reason) => refusal({ reason }))
  await audit.recordRefusals(ones)
  for (const { requestId, reason } of ones) t.match(await audit.find(requestId), [{ reason }])
})

t.test('the list is newest first and no longer than asked for', async (t) => {
  const { audit, sql } = await openStores(t, services)
  const ones: RefusalRecord[] = []
  for (let i = 0; i < 6; i++) {
    ones.unshift(refusal())
    await audit.recordRefusals([ones[0]!])
  }
  const newestFirst = ones.map(({ requestId }) => requestId)
  const listed = async (limit: number) => (await audit.list({ limit })).map((entry) => entry.request_id)
  t.strictSame(await listed(100), newestFirst)
  t.strictSame(await listed(2), newestFirst.slice(0, 2))
  await sql`update audit_log set occurred_at = (select max(occurred_at) from audit_log)`
  t.strictSame(await listed(100), newestFirst, 'of one moment, in the order of making')
  for (const [i, requestId] of newestFirst.entries()) {
    await sql`update audit_log set occurred_at = date_trunc('milliseconds', occurred_at) + make_interval(secs => ${i / 1e5})
      where request_id = ${requestId}`
  }
  t.strictSame(await listed(100), newestFirst.slice().reverse(), 'of one millisecond, by their very moments')
})

t.test('the list is narrowed by reason, by key and by moment, and by all of them', async (t) => {
  const { audit, sql } = await openStores(t, services)
  const keyId = newId('apk_')
  const make = async (reason: RefusalReason, keyId: string | null, ageS: number) => {
    const one = refusal({ reason, keyId })
    await audit.recordRefusals([one])
    await sql`update audit_log set occurred_at = date_trunc('day', now() at time zone 'UTC') at time zone 'UTC'
      + interval '1 hour' - make_interval(secs => ${ageS}) where request_id = ${one.requestId}`
    return one.requestId
  }
  const revoked = await make('revoked', keyId, 100)
  const expired = await make('expired', keyId, 50)
  const others = await make('revoked', newId('apk_'), 20)
  const [{ start }] = (await sql`
    select extract(epoch from date_trunc('day', now() at time zone 'UTC') at time zone 'UTC')::float8 + 3600 as start`) as [
    { start: number },
  ]
  const listed = async (filter: Omit<Parameters<typeof audit.list>[0], 'limit'>) =>
    (await audit.list({ ...filter, limit: 10 })).map((entry) => entry.request_id)
  t.strictSame(await listed({ reason: 'revoked' }), [others, revoked])
  t.strictSame(await listed({ keyId }), [expired, revoked])
  t.strictSame(await listed({ since: start - 50 }), [others, expired], 'from that second on')
  t.strictSame(await listed({ since: start - 49.5 }), [others])
  t.strictSame(await listed({ reason: 'revoked', keyId, since: start - 100 }), [revoked])
  t.strictSame(await listed({ reason: 'missing_header' }), [])
  t.strictSame(await listed({ keyId: "' or true --" }), [])
})

t.test('a list that has to read far back is waited for, longer than a request would be', async (t) => {
  const { audit, sql } = await openStores(t, services, { timeoutMs: 500 })
  await audit.recordRefusals([refusal()])
  let listing: ReturnType<typeof audit.list> | undefined
  await sql.begin(async (tx) => {
    await tx`lock table audit_log in access exclusive mode`
    listing = audit.list({ limit: 10 })
    listing.catch(() => {})
    await new Promise((resolve) => setTimeout(resolve, 900))
  })
  t.equal((await listing!).length, 1)
})
