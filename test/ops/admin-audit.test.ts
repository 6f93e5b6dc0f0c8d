// The audit log over the admin API: every entry once, newest first, narrowed by what an operator asks for.
import t from 'tap'
import { type AuditEvent, auditEvents } from '../../schemas/bounds.ts'
import { newId } from '../../src/rules/id.ts'
import { type Code, expectError } from '../api/expect-error.ts'
import { makeKey } from '../instance.ts'
import { startAdmin } from './admin.ts'

const { instance, sql, admin } = await startAdmin(t)

const ids = async (query: string): Promise<string[]> => {
  const { status, body } = await admin('GET', `audit?${query}`)
  t.equal(status, 200, query)
  return body.data.map(({ id }: { id: string }) => id)
}

/** Entries about a user that only they are about. `ageUs`: microseconds before the end of this hour. */
async function entries(rows: { event: AuditEvent; ageUs: number; keyId?: string; reason?: string }[]) {
  const userId = newId('usr_')
  await sql`insert into users (id, name) values (${userId}, 'x')`
  const made: string[] = []
  for (const { event, ageUs, keyId = null, reason = null } of rows) {
    const id = newId('aud_')
    await sql`
      insert into audit_log (id, request_id, event, reason, user_id, key_id, occurred_at)
      values (${id}, ${newId('req_')}, ${event}, ${reason}, ${userId}, ${keyId},
        date_trunc('hour', now()) + interval '1 hour' - make_interval(secs => ${ageUs / 1e6}))`
    made.push(id)
  }
  return { userId, made }
}

t.test('an entry has all that is known of an act and of a refusal', async (t) => {
  const user = (await admin('POST', 'users', { name: 'x' })).body
  const { id, token } = await makeKey(instance, { userId: user.id })
  await admin('DELETE', `keys/${id}`)
  const refused = await instance.ask('GET', '/v1/verify', { token })
  const { body } = await admin('GET', `audit?user_id=${user.id}`)
  t.match(
    body.data.map((entry: Record<string, unknown>) => [entry.event, entry.actor, entry.key_id, entry.reason]),
    [
      ['auth.refused', null, id, 'revoked'],
      ['key.revoked', 'operator:ada', id, null],
      ['key.created', null, id, null],
      ['user.created', 'operator:ada', null, null],
    ],
  )
  t.strictSame(Object.keys(body.data[0]).sort(), [
    ...['actor', 'details', 'event', 'id', 'ip', 'key_id', 'method', 'occurred_at', 'path', 'reason'],
    ...['request_id', 'user_agent', 'user_id'],
  ])
  t.match(body.data[0], {
    request_id: refused.headers.get('x-request-id'),
    method: 'GET',
    path: '/v1/verify',
  })
  t.match(body.data[0].occurred_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  t.strictSame(body.data[3].details, { name: 'x', external_id: null })
  t.match(body, { object: 'list', has_more: false, next_cursor: null })
})

t.test('the list is narrowed by each filter, and by all of them', async (t) => {
  const keyId = newId('apk_')
  const { userId, made } = await entries([
    { event: 'key.updated', ageUs: 1e6, keyId },
    { event: 'auth.refused', ageUs: 2e6, keyId, reason: 'expired' },
    { event: 'operator.refused', ageUs: 3e6, reason: 'wrong_token' },
    { event: 'user.updated', ageUs: 4e6 },
  ])
  const [updated, refused, operators, user] = made
  const of = (query: string) => ids(`user_id=${userId}&${query}`)
  const [{ end, request }] = (await sql`
    select extract(epoch from date_trunc('hour', now()))::int + 3600 as end, request_id as request
    from audit_log where id = ${operators!}`) as unknown as [{ end: number; request: string }]
  t.strictSame(await of(''), made)
  t.strictSame(await ids(`key_id=${keyId}`), [updated, refused])
  t.strictSame(await ids(`request_id=${request}`), [operators])
  t.strictSame(await of('reason=expired'), [refused])
  t.strictSame(await of('reason=wrong_token'), [operators])
  t.strictSame(await of('reason=revoked'), [])
  for (const [i, event] of (
    ['key.updated', 'auth.refused', 'operator.refused', 'user.updated'] as const
  ).entries())
    t.strictSame(await of(`event=${event}`), [made[i]])
  t.strictSame(await of('event=key.updated&reason=expired'), [])
  t.strictSame(await of(`since=${end - 2}`), [updated, refused], 'from that second on')
  t.strictSame(await of(`until=${end - 2}`), [operators, user], 'before that second')
  t.strictSame(await of(`since=${end - 3}&until=${end - 1}`), [refused, operators])
  t.strictSame(await of(`key_id=${keyId}&event=auth.refused&reason=expired&since=${end - 2}`), [refused])
  t.strictSame((await ids('limit=2&')).length, 2)
})

t.test('a key in place of a request id finds nothing, and is not sent to Postgres', async (t) => {
  const { audit, tokenFormat } = instance.service.stores
  const calls = t.capture(audit, 'list', audit.list)
  t.strictSame(await ids(`request_id=${tokenFormat.mint()}`), [])
  t.strictSame(calls(), [])
})

t.test('the pages hold every entry once, also those of one millisecond and of one moment', async (t) => {
  const ages = [1000, 1000, 1300, 1600, 1600, 2000]
  const rows = auditEvents.slice(2).map((event, i) => ({ event, ageUs: ages[i] ?? 5_000_000 }))
  const { userId } = await entries([
    ...rows,
    { event: 'auth.refused', ageUs: 1200, reason: 'revoked' },
    { event: 'auth.refused', ageUs: 1250, reason: 'revoked' },
    { event: 'operator.refused', ageUs: 1900, reason: 'wrong_token' },
  ])
  const expected = (
    await sql`select id from audit_log where user_id = ${userId} order by occurred_at desc, id desc`
  ).map(({ id }) => id)
  t.equal(expected.length, auditEvents.length + 1)
  for (const limit of [1, 2, 4]) {
    const walked: string[] = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { body } = await admin(
        'GET',
        `audit?user_id=${userId}&limit=${limit}${cursor && `&starting_after=${cursor}`}`,
      )
      t.equal(body.has_more, body.next_cursor !== null)
      walked.push(...body.data.map(({ id }: { id: string }) => id))
      cursor = body.next_cursor
    }
    t.strictSame(walked, expected, `in pages of ${limit}`)
  }
})

t.test('a page continues where an entry was that has been dropped meanwhile', async (t) => {
  const { userId, made } = await entries([1e6, 2e6, 3e6].map((ageUs) => ({ event: 'key.updated', ageUs })))
  const { body } = await admin('GET', `audit?user_id=${userId}&limit=2`)
  await sql`delete from audit_log where id = ${made[1]!}`
  t.strictSame(await ids(`user_id=${userId}&starting_after=${body.next_cursor}`), [made[2]])
})

t.test('an invalid value is refused and named', async (t) => {
  const refused: [query: string, code: Code, param: string][] = [
    ...['', '%20', '%00', 'req_%00', 'x'.repeat(65)].map((id): [string, Code, string] => [
      `request_id=${id}`,
      'invalid_parameter',
      'request_id',
    ]),
    ...['', 'aud_1', '%00', 'apk_%00', 'apk_nobody', instance.service.stores.tokenFormat.mint()].map(
      (id): [string, Code, string] => [`key_id=${id}`, 'not_found', 'key_id'],
    ),
    ...['', 'apk_1', 'usr_%00', 'usr_nobody'].map((id): [string, Code, string] => [
      `user_id=${id}`,
      'not_found',
      'user_id',
    ]),
    ['request_id=req_1&key_id=apk_nobody', 'not_found', 'key_id'],
    ['request_id=req_1&user_id=usr_nobody', 'not_found', 'user_id'],
    ['key_id=apk_1&key_id=apk_2', 'invalid_parameter', 'key_id'],
    ['reason=other', 'invalid_parameter', 'reason'],
    ['event=key.%', 'invalid_parameter', 'event'],
    ['event=key.created&event=key.updated', 'invalid_parameter', 'event'],
    ...['since', 'until'].flatMap((name): [string, Code, string][] =>
      ['', '-1', '1.5', '2026-01-01', '15m', '10000000000'].map((at) => [
        `${name}=${at}`,
        'invalid_parameter',
        name,
      ]),
    ),
    ['since=6&until=5', 'invalid_parameter', 'since'],
    ['since=5&until=5', 'invalid_parameter', 'since'],
    ['limit=0', 'invalid_parameter', 'limit'],
    ['limit=101', 'invalid_parameter', 'limit'],
    ['actor=operator:ada', 'unknown_parameter', 'actor'],
    ...[
      '',
      'x',
      'aud_1',
      'aud_1.5',
      'aud_1.x.key.created',
      'aud_1.5.nothing',
      '%00',
      'aud_%00.5.key.created',
    ].map((cursor): [string, Code, string] => [`starting_after=${cursor}`, 'not_found', 'starting_after']),
  ]
  for (const [query, code, param] of refused) {
    t.comment(query)
    expectError(t, await admin('GET', `audit?${query}`), code, param)
  }
  expectError(t, await admin('POST', 'audit', {}), 'method_not_allowed')
})
