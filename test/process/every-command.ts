// What each command answers with --json, in one story that runs on every kind of servers.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { ask } from './ask.ts'
import { aFolder, type Ended } from './latchkey.ts'

const userMembers = ['created_at', 'deleted_at', 'external_id', 'id', 'name']
const keyMembers = [
  ...['created_at', 'expires_at', 'id', 'key_prefix', 'last_used_at'],
  ...['name', 'rate_limit_rpm', 'revoked_at', 'user_id'],
]
const auditMembers = [
  ...['event', 'id', 'ip', 'key_id', 'method', 'occurred_at'],
  ...['path', 'reason', 'request_id', 'user_agent', 'user_id'],
]

const nowS = () => Math.floor(Date.now() / 1000)
const membersOf = (value: object) => Object.keys(value).sort()

type Run = (...words: string[]) => Promise<Ended>

/** `service`: the URL of one that runs beside, on the same data. */
export async function everyCommand(t: Test, run: Run, service: string | null): Promise<void> {
  const startS = nowS()
  /** On the servers' clock, which may be another's. */
  const isNow = (unixS: unknown) =>
    Number.isInteger(unixS) && (unixS as number) >= startS - 5 && (unixS as number) <= nowS() + 5
  // biome-ignore lint/suspicious/noExplicitAny: each command has its own answer
  async function answerOf(...words: string[]): Promise<any> {
    const { code, stdout, stderr } = await run(...words, '--json')
    t.equal(code, 0, `${words.slice(0, 2).join(' ')} succeeds: ${stderr}`)
    t.match(stdout, /^[^\n]+\n$/, 'stdout is one line')
    return JSON.parse(stdout)
  }
  const verify = (token: string) => ask(`GET ${service}/v1/verify`, { token })

  const user = await answerOf('users', 'create', '--name', 'Ada "the first" Ünïcøde')
  t.same(membersOf(user), userMembers)
  t.match(user, { id: /^usr_[0-9A-Za-z]+$/, name: 'Ada "the first" Ünïcøde', deleted_at: null })
  t.ok(isNow(user.created_at))

  const expiry = nowS() + 36_000
  const wanted = ['--name', 'ci', '--rate-limit-rpm', '7', '--expires-at', String(expiry)]
  const created = await answerOf('keys', 'create', '--user', user.id, ...wanted)
  t.same(membersOf(created), [...keyMembers, 'plain_key'].sort())
  t.match(created, { id: /^apk_[0-9A-Za-z]+$/, name: 'ci', rate_limit_rpm: 7, expires_at: expiry })
  t.match(created, { last_used_at: null, revoked_at: null, plain_key: /^lk_[0-9A-Za-z]{38}$/ })
  t.equal(created.key_prefix, created.plain_key.slice(0, 10))
  const second = await answerOf('keys', 'create', '--user', user.id, '--name', 'kept')
  t.match(second, { rate_limit_rpm: 1000, expires_at: null })
  if (service) {
    t.equal((await verify(created.plain_key)).headers.get('x-ratelimit-limit'), '7')
    t.equal((await verify(second.plain_key)).status, 200)
  }

  const updated = await answerOf(
    'keys',
    'update',
    second.id,
    '--rate-limit-rpm',
    '9',
    '--expires-at',
    String(expiry),
  )
  t.match(updated, { name: 'kept', rate_limit_rpm: 9, expires_at: expiry })
  t.match(await answerOf('keys', 'update', second.id, '--no-expires-at', '--name', 'renamed'), {
    ...{ name: 'renamed', rate_limit_rpm: 9, expires_at: null },
  })
  if (service) t.equal((await verify(second.plain_key)).headers.get('x-ratelimit-limit'), '9')
  t.match(await answerOf('keys', 'get', second.id), { id: second.id, user_id: user.id, name: 'renamed' })
  for (const owner of [[], ['--user', user.id]])
    t.match(await answerOf('keys', 'list', ...owner, '--prefix', created.key_prefix), [{ id: created.id }])

  const revoked = await answerOf('keys', 'revoke', created.id)
  t.same(membersOf(revoked), keyMembers)
  t.ok(isNow(revoked.revoked_at))
  const refused = service ? await verify(created.plain_key) : null
  if (refused) t.equal(refused.status, 401, 'the running service refuses it from then on')

  const keys = await answerOf('keys', 'list', '--user', user.id)
  t.same(
    keys.map(({ id }: { id: string }) => id),
    [second.id, created.id],
    'newest first, the revoked one too',
  )
  for (const key of keys) t.same(membersOf(key), keyMembers, 'and no secret')
  t.match(await answerOf('keys', 'list', '--user', user.id, '--status', 'revoked'), [{ id: created.id }])

  const entries = await answerOf('audit', 'list', '--key', created.id, '--since', '1h', '--limit', '1')
  t.equal(entries.length, 1)
  t.equal(entries[0].event, refused ? 'auth.refused' : 'key.revoked', 'the newest entry of this key')
  const requestId = refused?.body.error.request_id ?? entries[0].request_id
  const found = await answerOf('audit', 'find', requestId)
  t.same(found, entries[0])
  for (const member of auditMembers) t.ok(member in found, `an audit entry has ${member}`)
  t.match(found, { id: /^aud_/, request_id: requestId, key_id: created.id, user_id: user.id })
  t.ok(isNow(Math.floor(Date.parse(found.occurred_at) / 1000)), 'a moment')
  const listed = await answerOf('audit', 'list', '--reason', 'revoked')
  t.same(listed, refused ? [found] : [])

  const filter = ['--user', user.id, '--event', 'key.updated', '--until', String(nowS() + 60)]
  t.same(
    (await answerOf('audit', 'list', ...filter)).map((entry: { key_id: string }) => entry.key_id),
    [second.id, second.id],
  )
  t.same(await answerOf('audit', 'list', '--until', '1h'), [])

  const status = await answerOf('keys', 'rehash-status')
  t.same(Object.keys(status), ['usable', 'current', 'left', 'previous', 'other'])
  t.ok(status.current >= 1 && status.left === 0, 'all are hashed under the one secret there is')

  const renamed = await answerOf('users', 'update', user.id, '--external-id', 'customer-17', '--name', 'Ada')
  t.match(renamed, { id: user.id, name: 'Ada', external_id: 'customer-17' })
  t.same(await answerOf('users', 'list', '--external-id', 'customer-17'), [renamed])
  t.match(await answerOf('lookup', 'customer-17'), { type: 'user', user: renamed })
  t.equal((await answerOf('users', 'update', user.id, '--no-external-id')).external_id, null)
  t.match(await answerOf('users', 'get', user.id), { id: user.id, name: 'Ada', external_id: null })
  t.match(await answerOf('lookup', created.id), { type: 'key', state: 'revoked', user: { id: user.id } })

  t.same(await answerOf('users', 'revoke-keys', user.id), { revoked: 1 })
  if (service) t.equal((await verify(second.plain_key)).status, 401, 'so no key of the user is left')
  const third = await answerOf('keys', 'create', '--user', user.id, '--name', 'third')
  const successor = await answerOf('keys', 'rotate', third.id, '--expires-in', '3600')
  t.same(membersOf(successor), [...keyMembers, 'plain_key'].sort())
  t.match(successor, { name: 'third', user_id: user.id, plain_key: /^lk_/ })
  if (service)
    for (const { plain_key } of [third, successor])
      t.equal((await verify(plain_key)).status, 200, 'both work')
  const fourth = await answerOf('keys', 'create', '--user', user.id, '--name', 'fourth')
  const { id: fifth } = await answerOf('keys', 'rotate', fourth.id)
  t.ok(isNow((await answerOf('keys', 'get', fourth.id)).revoked_at), 'without a grace period it is revoked')
  await answerOf('keys', 'revoke', fifth)

  const leaky = join(await aFolder(t), 'server.log')
  // More than one chunk.
  await writeFile(leaky, `${'x\n'.repeat(700_000)}key=${third.plain_key}\n${successor.plain_key}`)
  const scanned = await run('keys', 'scan', leaky, '--json')
  t.match(JSON.parse(scanned.stdout), [
    { file: leaky, keys: [{ state: 'active' }, { state: 'active' }], unknown: 0 },
  ])
  const [cleaned] = await answerOf('keys', 'scan', '--revoke', leaky)
  t.same(new Set(cleaned.keys.map(({ id }: { id: string }) => id)), new Set([third.id, successor.id]))
  for (const key of cleaned.keys) t.match(key, { state: 'revoked', revoked: true })

  const last = await answerOf('keys', 'create', '--user', user.id, '--name', 'last')
  if (service) t.equal((await verify(last.plain_key)).status, 200)
  const removed = await answerOf('users', 'delete', user.id)
  t.same(membersOf(removed), userMembers)
  t.ok(isNow(removed.deleted_at))
  if (service) for (const { plain_key } of [successor, last]) t.equal((await verify(plain_key)).status, 401)
  const users = await answerOf('users', 'list')
  t.strictSame(
    users.filter(({ id }: { id: string }) => id === user.id),
    [removed],
  )
  t.same((await answerOf('migrate')).applied, [], 'the schema has been there since the first command')
}
