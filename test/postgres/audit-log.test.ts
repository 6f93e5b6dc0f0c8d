// The audit log in Postgres: refusals written in batches, found by request, listed by what an
// operator asks for.
import postgres from 'postgres'
import t from 'tap'
import { type RefusalReason, refusalReasons } from '../../schemas/refusal.ts'
import { createAuditLog } from '../../src/postgres/audit.ts'
import type { Pool } from '../../src/postgres/pool.ts'
import { newId } from '../../src/rules/id.ts'
import type { AuditFilter, RefusalRecord } from '../../src/stores.ts'
import { actor, openStores } from './open-stores.ts'

const { audit, keys, users, sql, url, makeUser, makeKey } = await openStores(t)

const refusal = (more: Partial<RefusalRecord> = {}): RefusalRecord => ({
  requestId: newId('req_'),
  reason: 'unknown_key',
  keyId: null,
  userId: null,
  method: 'GET',
  path: '/v1/verify',
  ip: '192.0.2.7',
  userAgent: 'curl/8',
  details: null,
  ...more,
})

t.test('an entry is found by its request, with everything that was recorded of it', async (t) => {
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

t.test('the entries of a request are found in their order', async (t) => {
  const first = refusal({ reason: 'revoked' })
  const second = refusal({ requestId: first.requestId, reason: 'expired' })
  for (const one of [first, second]) await audit.recordRefusals([one])
  t.strictSame(
    (await audit.find(first.requestId)).map(({ reason }) => reason),
    ['revoked', 'expired'],
  )
})

t.test('the entries of a request are in the order of their times, not of their ids', async (t) => {
  const requestId = newId('req_')
  for (const reason of ['revoked', 'expired'] as const)
    await audit.recordRefusals([refusal({ requestId, reason })])
  await sql`
    update audit_log set occurred_at = occurred_at - interval '2 seconds'
    where request_id = ${requestId} and reason = 'expired'`
  t.strictSame(
    (await audit.find(requestId)).map(({ reason }) => reason),
    ['expired', 'revoked'],
  )
})

t.test('every refusal of batches written at once is committed when they are answered', async (t) => {
  const batches = [0, 1, 2].map(() => Array.from({ length: 1000 }, () => refusal({ path: '/batch' })))
  await Promise.all(batches.map((batch) => audit.recordRefusals(batch)))
  const rows = await sql`select id, request_id from audit_log where path = '/batch'`
  t.equal(new Set(rows.map(({ id }) => id)).size, 3000)
  const asked = batches.flat().map(({ requestId }) => requestId)
  t.strictSame(rows.map(({ request_id }) => request_id).sort(), asked.sort())
  await audit.recordRefusals([])
})

t.test('the entry of all keys of a user is in the trail of each key that it revoked', async (t) => {
  const { id } = await makeUser()
  const revoked = [await makeKey(id), await makeKey(id)]
  const before = revoked.pop()!
  await keys.revoke(before.id, null, actor())
  await users.revokeKeys(id, actor())
  const trail = async (keyId: string, filter: Partial<AuditFilter> = {}) =>
    (await audit.list({ keyId, ...filter, limit: 10 })).map(({ event }) => event)
  for (const { id } of revoked) t.strictSame(await trail(id), ['user.keys_revoked', 'key.created'])
  t.strictSame(await trail(before.id), ['key.revoked', 'key.created'])
  t.strictSame(await trail(revoked[0]!.id, { userId: id }), ['user.keys_revoked', 'key.created'])
  t.strictSame(await trail(revoked[0]!.id, { userId: (await makeUser()).id }), [])
})

t.test('the deletion of a user is in the trail of each key that it ended', async (t) => {
  const [{ id }, stranger] = [await makeUser(), await makeUser()]
  const [ended, before, others] = [await makeKey(id), await makeKey(id), await makeKey(stranger.id)]
  await keys.revoke(before.id, null, actor())
  await users.remove(id, actor())
  const trail = async (keyId: string, filter: Partial<AuditFilter> = {}) =>
    (await audit.list({ keyId, limit: 10, ...filter })).map(({ event }) => event)
  t.strictSame(await trail(ended.id), ['user.deleted', 'key.created'])
  t.strictSame(await trail(ended.id, { event: 'user.deleted' }), ['user.deleted'])
  t.strictSame(await trail(ended.id, { event: 'key.created' }), ['key.created'])
  t.strictSame(await trail(ended.id, { userId: stranger.id }), [])
  t.strictSame(await trail(before.id), ['key.revoked', 'key.created'])
  t.strictSame(await trail(others.id), ['key.created'])
  await keys.revoke(ended.id, null, actor())
  t.strictSame(await trail(ended.id), ['key.revoked', 'user.deleted', 'key.created'], 'it ended it first')
  await sql`update api_keys set expires_at = created_at + interval '1 microsecond' where id = ${ended.id}`
  t.strictSame(await trail(ended.id), ['key.revoked', 'key.created'], 'it had expired')
})

t.test('text of any kind, no text and every reason are stored as they are', async (t) => {
  const texts = [
    `'); drop table audit_log; --`,
    ...['"\\u0041\\', '{"a":1}', 'null', '', '\u00ff\u0080', '✓ 🗝', '\t', null],
  ]
  const ones = [
    ...texts.map((text) => refusal({ path: text, userAgent: text, method: text, ip: text })),
    ...refusalReasons.map((reason) => refusal({ reason })),
  ]
  await audit.recordRefusals(ones)
  for (const { requestId, reason, path, userAgent, method, ip } of ones) {
    const wanted = { reason, path, user_agent: userAgent, method, ip }
    t.match(await audit.find(requestId), [wanted], JSON.stringify(wanted))
  }
})

t.test('the list is newest first and no longer than asked for', async (t) => {
  const keyId = newId('apk_')
  const newestFirst: string[] = []
  for (let i = 0; i < 6; i++) {
    const one = refusal({ keyId })
    newestFirst.unshift(one.requestId)
    await audit.recordRefusals([one])
  }
  const listed = async (limit: number) =>
    (await audit.list({ keyId, limit })).map((entry) => entry.request_id)
  t.strictSame(await listed(100), newestFirst)
  t.strictSame(await listed(2), newestFirst.slice(0, 2))
  await sql`update audit_log set occurred_at = (select max(occurred_at) from audit_log) where key_id = ${keyId}`
  t.strictSame(await listed(100), newestFirst, 'entries of the same time are in the order they were made')
  for (const [i, requestId] of newestFirst.entries()) {
    await sql`update audit_log set occurred_at = date_trunc('milliseconds', occurred_at) + make_interval(secs => ${i / 1e5})
      where request_id = ${requestId}`
  }
  t.strictSame(await listed(100), newestFirst.slice().reverse(), 'microseconds count')
})

t.test('the list is narrowed by reason, by key, by time, and by all of them', async (t) => {
  const keyId = newId('apk_')
  const [{ start }] = (await sql`
    select extract(epoch from date_trunc('day', now() at time zone 'UTC') at time zone 'UTC')::float8 + 3600 as start`) as unknown as [
    { start: number },
  ]
  const make = async (reason: RefusalReason, keyId: string, ageS: number) => {
    const one = refusal({ reason, keyId })
    await audit.recordRefusals([one])
    await sql`update audit_log set occurred_at = to_timestamp(${start - ageS}) where request_id = ${one.requestId}`
    return one.requestId
  }
  const revoked = await make('revoked', keyId, 100)
  const expired = await make('expired', keyId, 50)
  const others = await make('revoked', newId('apk_'), 20)
  const made = [revoked, expired, others]
  const listed = async (filter: Omit<Parameters<typeof audit.list>[0], 'limit'>) =>
    (await audit.list({ ...filter, limit: 10_000 }))
      .map((entry) => entry.request_id)
      .filter((requestId) => made.includes(requestId))
  t.strictSame(await listed({}), [others, expired, revoked])
  t.strictSame(await listed({ reason: 'revoked' }), [others, revoked])
  t.strictSame(await listed({ keyId }), [expired, revoked])
  t.strictSame(await listed({ since: start - 50 }), [others, expired], 'from that second on')
  t.strictSame(await listed({ since: start - 49.5 }), [others])
  t.strictSame(await listed({ reason: 'revoked', keyId, since: start - 100 }), [revoked])
  t.strictSame(await listed({ reason: 'missing_header' }), [])
  t.strictSame(await listed({ keyId: "' or true --" }), [])
  t.strictSame(await listed({ requestId: 'req_\0' }), [])
})

t.test('refusals are counted from a moment on, and before another one', async (t) => {
  const one = refusal()
  await audit.recordRefusals([one])
  const [moved] = await sql`
    update audit_log set occurred_at = date_trunc('day', now()) + interval '2 days' where request_id = ${one.requestId}
    returning extract(epoch from occurred_at)::float8 as at`
  const counted = async (since: number, until: number) =>
    (await audit.countRefusals('reason', { since, until, limit: 9 })).length
  const { at } = moved!
  t.strictSame([await counted(at, at + 1), await counted(at - 1, at)], [1, 0])
})

t.test('refusals of operators are counted too', async (t) => {
  const { details: _, keyId: _key, userId: _user, ...one } = refusal()
  await audit.recordOperatorRefusal({ ...one, reason: 'wrong_token' })
  const [moved] = await sql`
    update audit_log set occurred_at = date_trunc('day', now()) + interval '3 days' where request_id = ${one.requestId}
    returning extract(epoch from occurred_at)::float8 as at`
  const { at } = moved!
  const counts = await audit.countRefusals('reason', { since: at, until: at + 1, limit: 9 })
  t.strictSame(counts, [{ value: 'wrong_token', refusals: 1 }])
})

t.test('reading the log takes no connection from what records refusals', async (t) => {
  const asked: string[] = []
  const pool = (name: string) =>
    ({
      run: async () => {
        asked.push(name)
        return []
      },
    }) as unknown as Pool
  const log = createAuditLog({ audit: pool('audit'), management: pool('management') })
  await log.recordRefusals([refusal()])
  await log.find('req_1')
  await log.list({ limit: 10 })
  t.strictSame(asked, ['audit', 'management', 'management'])
})

t.test('refused operators have a lane of their own: callers whose refusals wait stay answered', async (t) => {
  const lanes: (string | undefined)[] = []
  const pool = { run: async (_work, lane) => void lanes.push(lane) } as Partial<Pool> as Pool
  const { recordOperatorRefusal, recordRefusals } = createAuditLog({ audit: pool, management: pool })
  const { keyId, userId, details, ...asked } = refusal()
  await recordOperatorRefusal({ ...asked, reason: 'wrong_token' })
  await recordRefusals([refusal()])
  t.strictSame(lanes, ['operators', undefined])
})

t.test('reads use an index, however often a key, its user or anybody was refused', async (t) => {
  const { id: userId } = await makeUser()
  const { id: keyId } = await makeKey(userId)
  await sql`
    insert into audit_log (id, occurred_at, request_id, event, reason, key_id, user_id)
    select 'aud_' || n, now() + make_interval(secs => n / 1000.0), 'req_' || n, 'auth.refused', 'revoked',
      case when n % 3 = 0 then ${keyId} else 'apk_' || n end, case when n % 3 = 0 then ${userId} else 'usr_' || n end
    from generate_series(1, 60000) n`
  await sql`analyze audit_log`
  const sent: { text: string; values: string[] }[] = []
  const watched = postgres(url, { max: 1, debug: (_, text, values) => sent.push({ text, values }) })
  t.teardown(() => watched.end({ timeout: 1 }))
  const pool = { run: (work) => work(watched, () => {}) } as Partial<Pool> as Pool
  const { find, list } = createAuditLog({ audit: pool, management: pool })
  // As after many calls: the plan for any key, user or time would read every entry.
  await watched`set plan_cache_mode = force_generic_plan`
  async function readsFew(what: string) {
    const { text, values } = sent.at(-1)!
    const [row] = await watched.unsafe(`explain (analyze, buffers, format json) ${text}`, values)
    const { 'Shared Hit Blocks': hit, 'Shared Read Blocks': read } = row!['QUERY PLAN'][0].Plan
    t.ok(hit + read < 200, `${what}: ${hit + read} pages of 8 kB`)
  }
  const [first] = await audit.list({ keyId, event: 'auth.refused', limit: 1 })
  const after = { ...first!, ms: Date.parse(first!.occurred_at) }
  for (const filter of [
    { keyId },
    { userId },
    { keyId, userId },
    { keyId, after },
    { reason: 'revoked' },
    {},
  ] as const) {
    t.equal((await list({ ...filter, limit: 10 })).length, 10)
    await readsFew(Object.keys(filter).join())
  }
  t.equal((await find('req_1')).length, 1)
  await readsFew('find')
})
