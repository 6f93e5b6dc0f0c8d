// What strangers can put into names, paths and headers is printed so that it cannot act on the operator's terminal.
import t from 'tap'
import { table } from '../../src/commands/command.ts'
import { printable, printableJson } from '../../src/commands/printable.ts'
import { sendRaw } from '../api/raw-http.ts'
import { useServices } from '../services/index.ts'
import { ask } from './ask.ts'
import { externalEnv, runLatchkey, serveLatchkey } from './latchkey.ts'

/** Control, format, line and paragraph separator, private use, half a surrogate pair. */
const unsafe = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/u
const samples = ['\x1b', '\x07', '\x7f', '\x9b', '\u00ad', '\u202e', '\u2066', '\u2028', '\u2029']
const beyondTheFirstPlane = ['\u{e0041}', '\u{f0000}', '\u{10fffd}']

t.test('text: each unsafe character is written as \\u{…}, any other is left', async (t) => {
  for (const sample of [...samples, ...beyondTheFirstPlane, '\ud800', '\ue000', '\t', '\n']) {
    t.equal(printable(`a${sample}b`), `a\\u{${sample.codePointAt(0)!.toString(16)}}b`)
  }
  const harmless = 'Ünïcøde 日本語 🔑 "quoted" \\back'
  t.equal(printable(harmless), harmless)
})

t.test('JSON: each unsafe character is an escape that parses to the same value', async (t) => {
  for (const sample of [
    ...samples,
    ...beyondTheFirstPlane,
    '\ud800',
    '\ue000',
    '\t',
    '\n',
    'é',
    '🔑',
    '\\',
  ]) {
    const value = { [`member ${sample}`]: [`a${sample}b`] }
    const text = printableJson(value)
    t.notMatch(text, unsafe)
    t.strictSame(JSON.parse(text), value)
  }
  t.equal(printableJson('\u{e0041}'), '"\\udb40\\udc41"', 'two escapes beyond the first plane')
})

t.test('no command prints what strangers sent as it is', async (t) => {
  const env = externalEnv(await useServices(t))
  const service = await serveLatchkey(t, env)
  const run = async (...words: string[]) => {
    const { code, stdout, stderr } = await runLatchkey(t, env, ...words)
    t.equal(code, 0, stderr)
    t.notMatch(stdout.replaceAll('\n', ''), unsafe, words.slice(0, 2).join(' '))
    return stdout
  }
  const name = 'Ada \u202e\u2028\u{e0041}'
  const user = JSON.parse(await run('users', 'create', '--name', name, '--json'))
  t.equal(user.name, name)
  const key = JSON.parse(await run('keys', 'create', '--user', user.id, '--name', name, '--json'))
  t.match(await run('keys', 'create', '--user', user.id, '--name', name), 'Ada \\u{202e}\\u{2028}\\u{e0041}')
  await ask(`PATCH ${service.url}/v1/keys/${key.id}`, { token: key.plain_key, json: { name: `${name}!` } })
  const headers = ['User-Agent: \x9b31m\xc2\x9b31m', `Authorization: Bearer ${key.plain_key.slice(0, -1)}`]
  const { status, body } = await sendRaw(service.port, 'GET', '/v1/%9b2J', headers)
  t.equal(status, 401)

  for (const json of [[], ['--json']]) {
    t.match(await run('users', 'list', ...json), 'Ada')
    t.match(await run('keys', 'list', '--user', user.id, ...json), 'Ada')
    await run('audit', 'list', ...json)
    await run('audit', 'list', '--key', key.id, ...json)
    await run('audit', 'find', body.error.request_id, ...json)
    await run('keys', 'revoke', key.id, ...json)
    await run('users', 'delete', user.id, ...json)
  }
  const { stderr } = await runLatchkey(t, env, 'audit', 'find', 'req_\x9b2J\u202e\u2028x')
  t.match(stderr, 'req_\\u{9b}2J\\u{202e}\\u{2028}x')
  t.notMatch(stderr.trimEnd(), unsafe)
})

t.test('columns are as wide as what is printed', async (t) => {
  const lines = table(
    ['path', 'ip'],
    [
      ['/\x9b2J', '::1'],
      ['/x', '::2'],
    ],
  )
  t.strictSame(lines, ['path       ip', '/\\u{9b}2J  ::1', '/x         ::2'])
})
