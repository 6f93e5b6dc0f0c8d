// What the command line prints: JSON for programs, text for a person, and nothing that could act on a terminal.
import t from 'tap'
import { table } from '../../src/commands/command.ts'
import { printable, printableJson } from '../../src/rules/printable.ts'
import { sendRaw } from '../api/raw-http.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { ask } from './ask.ts'
import { everyCommand } from './every-command.ts'
import { externalEnv, openCommandLine, serveLatchkey } from './latchkey.ts'
import { until } from './until.ts'

/** Control, format, line and paragraph separator, private use, half a surrogate pair. */
const unsafe = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/u
const samples = [
  ...['\x1b', '\x07', '\x7f', '\x9b', '\u00ad', '\u202e', '\u2066', '\u2028', '\u2029'],
  ...['\u{e0041}', '\u{f0000}', '\u{10fffd}', '\ud800', '\ue000', '\t', '\n'],
]

t.test('text: each unsafe character is written as \\u{…}, any other is left', async (t) => {
  for (const sample of samples)
    t.equal(printable(`a${sample}b`), `a\\u{${sample.codePointAt(0)!.toString(16)}}b`)
  const harmless = 'Ünïcøde 日本語 🔑 👩\u200d💻 می\u200cخواهم "quoted" \\back'
  t.equal(printable(harmless), harmless)
  t.equal(printableJson(harmless), JSON.stringify(harmless))
})

t.test('JSON: each unsafe character is an escape that parses to the same value', async (t) => {
  for (const sample of [...samples, 'é', '🔑', '\\']) {
    const value = { [`member ${sample}`]: [`a${sample}b`] }
    const text = printableJson(value)
    t.notMatch(text, unsafe)
    t.strictSame(JSON.parse(text), value)
  }
  t.equal(printableJson('\u{e0041}'), '"\\udb40\\udc41"', 'two escapes beyond the first plane')
})

t.test('columns are as wide as what is printed', async (t) => {
  const rows = [
    ['/\x9b2J', '::1'],
    ['/x', '::2'],
  ]
  const lines = ['path       ip', '/\\u{9b}2J  ::1', '/x         ::2']
  t.strictSame(table(['path', 'ip'], rows), lines)
})

t.test('on given servers beside a running service', async (t) => {
  const services = await useServices(t)
  const env = externalEnv(services)
  const service = await serveLatchkey(t, env)
  const { run, answerOf } = await openCommandLine(t, env)

  await t.test('--json is one JSON value', (t) => everyCommand(t, run, service.url))

  await t.test(
    'without --json it is text for a person, and no text of a stranger acts on a terminal',
    async (t) => {
      const succeed = async (...words: string[]) => {
        const { code, stdout, stderr } = await run(...words)
        t.strictSame([code, stderr], [0, ''], words.slice(0, 2).join(' '))
        t.ok(stdout.endsWith('\n'))
        t.notMatch(stdout.replaceAll('\n', ''), unsafe)
        if (!words.includes('--json')) t.throws(() => JSON.parse(stdout), 'it is not JSON')
        return stdout
      }
      const name = 'Ada \u202e\u2028\u{e0041}'
      const user = JSON.parse(await succeed('users', 'create', '--name', name, '--json'))
      t.equal(user.name, name)
      const wanted = ['--name', name, '--expires-at', '2099-01-01']
      const created = await succeed('keys', 'create', '--user', user.id, ...wanted)
      t.match(created, 'Ada \\u{202e}\\u{2028}\\u{e0041}')
      const key = /apk_\w+/.exec(created)![0]
      const token = /lk_\w+/.exec(created)![0]
      await ask(`PATCH ${service.url}/v1/keys/${key}`, { token, json: { name: `${name}!` } })
      await until('it has been used', async () =>
        / active +1000 +\S+Z +\S+Z +2099-01-01T00:00:00Z +usr_/.test(await succeed('keys', 'get', key)),
      )
      const headers = ['User-Agent: \x9b31m\xc2\x9b31m', `Authorization: Bearer ${token.slice(0, -1)}`]
      const { status, body } = await sendRaw(service.port, 'GET', '/v1/%9b2J', headers)
      t.equal(status, 401)

      for (const json of [[], ['--json']]) {
        t.match(await succeed('users', 'list', ...json), user.id)
        const list = await succeed('keys', 'list', '--user', user.id, ...json)
        t.match(list, key)
        t.notMatch(list, token, 'the secret is shown at creation only')
        t.match(await succeed('keys', 'revoke', key, ...json), key)
        const entries = await succeed('audit', 'list', '--key', key, ...json)
        t.match(entries, 'key.revoked')
        t.match(await succeed('audit', 'list', ...json), 'auth.refused')
        t.match(await succeed('audit', 'find', /req_\w+/.exec(entries)![0], ...json), 'key.revoked')
        await succeed('audit', 'find', body.error.request_id, ...json)
        t.match(await succeed('users', 'delete', user.id, ...json), user.id)
      }
      t.match(await succeed('--help'), /Commands:\n {2}serve /)
      t.match(
        (await run('audit', 'find', 'req_\x9b2J\u202e\u2028x')).stderr,
        'req_\\u{9b}2J\\u{202e}\\u{2028}x\n',
      )
    },
  )

  await t.test('keys of a deleted user do not look active', async (t) => {
    const user = await answerOf('users', 'create', '--name', 'left')
    const create = ['keys', 'create', '--user', user.id, '--name', 'x']
    const { id, key_prefix } = await answerOf(...create)
    const revoked = await answerOf(...create)
    await run('keys', 'revoke', revoked.id)
    await run('users', 'delete', user.id)
    for (const words of [
      ['get', id],
      ['update', id, '--name', 'y'],
      ['list', '--user', user.id],
      ['list', '--prefix', key_prefix],
    ])
      t.match((await run('keys', ...words)).stdout, `${id}  ${key_prefix}  owner_deleted  `)
    for (const words of [
      ['get', revoked.id],
      ['list', '--user', user.id],
    ])
      t.match((await run('keys', ...words)).stdout, `${revoked.id}  ${revoked.key_prefix}  revoked  `)
  })

  await t.test('a list has all its pages, in one order', async (t) => {
    const sql = openDatabase(t, services.databaseUrl)
    await sql`insert into users (id, name, created_at)
      select 'usr_' || lpad(n::text, 26, '0'), 'one of many', now() - make_interval(secs => n)
      from generate_series(1, 250) n`
    const [owner] = await sql`select id from users order by created_at limit 1`
    await sql`insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix, created_at)
      select 'apk_' || lpad(n::text, 26, '0'), ${owner!.id}, 'one of many', sha256(n::text::bytea), 'x',
        'lk_1234567', now() - make_interval(secs => n)
      from generate_series(1, 250) n`
    const ids = (rows: Iterable<{ id?: string }>) => Array.from(rows, ({ id }) => id)
    const listed = async (...words: string[]) => ids(JSON.parse((await run(...words, '--json')).stdout))
    t.strictSame(await listed('users', 'list'), ids(await sql`select id from users order by created_at, id`))
    t.strictSame(
      await listed('keys', 'list', '--user', owner!.id),
      ids(await sql`select id from api_keys where user_id = ${owner!.id} order by created_at desc, id desc`),
    )
  })
})
