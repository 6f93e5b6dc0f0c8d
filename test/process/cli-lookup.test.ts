// latchkey lookup: a whole key comes by stdin, and is printed nowhere.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { builtCli } from './built.ts'
import { externalEnv, openCommandLine } from './latchkey.ts'
import { noTerminals, onTerminal } from './terminal.ts'
import { until } from './until.ts'

const env = externalEnv(await useServices(t))
const { run, runWith, answerOf } = await openCommandLine(t, env)

const user = await answerOf('users', 'create', '--name', 'Ada', '--external-id', 'customer-17')
const key = await answerOf('keys', 'create', '--user', user.id, '--name', 'ci')

async function lookUpFromStdin(query: string) {
  const child = spawn(process.execPath, [await builtCli(), 'lookup', '-'], { env })
  child.stdin.on('error', () => {}).end(query)
  const [[code], stdout, stderr] = await Promise.all([
    once(child, 'close'),
    text(child.stdout),
    text(child.stderr),
  ])
  return { code, stdout, stderr }
}

t.test('a whole key from stdin is found, and appears nowhere', async (t) => {
  const command = `curl localhost \\\n\t-H "Authorization: Bearer ${key.plain_key}"\n`
  for (const query of [key.plain_key, ` ${key.plain_key}\r\nand another line`, `\r\n\n${command}`]) {
    const { code, stdout, stderr } = await lookUpFromStdin(query)
    t.strictSame([code, stderr], [0, ''])
    for (const fact of [/^state +active$/m, key.id, key.key_prefix, user.id, 'customer-17'])
      t.match(stdout, fact)
    t.notMatch(stdout, key.plain_key)
  }
})

t.test('a command of several lines is pasted into the hidden prompt', { skip: noTerminals }, async (t) => {
  const header = `-H "Authorization: Bearer ${key.plain_key}"`
  for (const pasted of [`\rcurl localhost \\\r  ${header}`, `curl localhost\r${header}\rexit`]) {
    const terminal = await onTerminal(t, env, 'lookup', '-')
    await until('it asks', () => terminal.shown.includes('(not shown): '))
    terminal.type(pasted)
    terminal.type('\r')
    const { code, shown } = await terminal.ended
    t.equal(code, 0)
    t.match(shown, key.id)
    t.notMatch(shown, key.plain_key)
  }
})

t.test('Ctrl-C at the prompt ends it with 130 and no message', { skip: noTerminals }, async (t) => {
  const terminal = await onTerminal(t, env, 'lookup', '-')
  await until('it asks', () => terminal.shown.includes('(not shown): '))
  terminal.type('\x03')
  const { code, shown } = await terminal.ended
  t.equal(code, 130)
  t.notMatch(shown, 'latchkey:')
})

t.test('a directory as stdin is named', async (t) => {
  const folder = openSync('.', 'r')
  const child = spawn(process.execPath, [await builtCli(), 'lookup', '-'], {
    env,
    stdio: [folder, 'ignore', 'pipe'],
  })
  closeSync(folder)
  t.match(await text(child.stderr!), /^latchkey: stdin is a directory: /)
})

t.test('a whole key as an argument is found too, with a warning', async (t) => {
  const { code, stdout, stderr } = await run('lookup', key.plain_key, '--json')
  t.equal(code, 0)
  t.match(JSON.parse(stdout), { type: 'key', key: { id: key.id } })
  t.match(stderr, /history.*latchkey lookup -/)
  t.notMatch(stdout + stderr, key.plain_key)
})

t.test('a prefix, an id, an external id and a request id are found', async (t) => {
  const [entry] = await answerOf('audit', 'list', '--event', 'key.created')
  for (const query of [key.key_prefix, key.id, entry.request_id]) {
    const { code, stdout, stderr } = await run('lookup', query)
    t.strictSame([code, stderr], [0, ''], query)
    t.match(stdout, `${key.id}  ${key.key_prefix}…  ci`, query)
  }
  t.match((await run('lookup', 'customer-17')).stdout, /^what +user\nstate +active$/m)
  t.match((await run('lookup', entry.request_id)).stdout, /audit entries\n.*\n.*key\.created/)
})

t.test('an external id that begins like a key, or has outer spaces, is found', async (t) => {
  const asAcme = { ...env, KEY_PREFIX: 'acme' }
  for (const id of ['acme_customer_42', ' padded ']) {
    await runWith(asAcme, 'users', 'create', '--name', 'x', '--external-id', id)
    const { stdout } = await runWith(asAcme, 'lookup', id, '--json')
    t.match(JSON.parse(stdout || 'null'), { type: 'user', user: { external_id: id } })
  }
  t.match(await lookUpFromStdin(' padded \n'), { code: 0, stdout: /^external id +padded$/m })
})

t.test('keys of one prefix are all shown, and when one was revoked and last refused', async (t) => {
  const revoked = await answerOf('keys', 'create', '--user', user.id, '--name', 'old')
  await run('keys', 'revoke', revoked.id)
  const sql = openDatabase(t, env.DATABASE_URL!)
  await sql`update api_keys set key_prefix = 'lk_same123' where id in (${key.id}, ${revoked.id})`
  await sql`insert into audit_log (id, request_id, event, reason, key_id)
    values ('aud_1', 'req_1', 'auth.refused', 'revoked', ${revoked.id})`
  const both = (await run('lookup', 'lk_same123')).stdout
  for (const { id } of [key, revoked]) t.match(both, id)
  const { stdout } = await run('lookup', revoked.id)
  t.match(stdout, /^created +\d{4}-\S+Z\nlast used +-\nexpires +-\nrevoked +\d{4}-\S+Z$/m)
  t.match(stdout, /\n\nlatest refusals\noccurred .*\n\S+ +req_1 +auth\.refused +revoked /)
})

t.test('characters that nothing can have are refused', async (t) => {
  for (const query of ['customer\0', 'customer\x1b[2J']) {
    const { code, stderr } = await lookUpFromStdin(query)
    t.strictSame([code, stderr], [1, 'latchkey: lookup takes no control characters\n'])
  }
})

t.test('what is not UTF-8 finds no one, and becomes no external id', async (t) => {
  const latin1 = async (words: string, input = '') => {
    const command = `printf '${input}' | '${process.execPath}' '${await builtCli()}' ${words}`
    const child = spawn('bash', ['--norc', '-c', command], { env: { PATH: process.env.PATH, ...env } })
    const [[code], stderr] = await Promise.all([once(child, 'close'), text(child.stderr)])
    return { code, stderr }
  }
  const refused = { code: 1, stderr: /^latchkey: caf\ufffd is not UTF-8: [^\n]*\n$/ }
  t.match(await latin1("users create --name x --external-id $'caf\\xe9'"), refused)
  t.match(await latin1("users list --external-id $'caf\\xe9'"), refused)
  t.match(await latin1("lookup $'caf\\xe9'"), refused)
  t.match(await latin1('lookup -', 'caf\\xe9'), refused)
})

t.test('a prefix that is too short or too long says how long one is', async (t) => {
  for (const text of ['lk_', key.key_prefix.slice(0, -1)])
    t.match(await run('lookup', text), { code: 1, stderr: /nothing found.*; give all 10 characters.*\n$/ })
  t.match(await run('lookup', 'lk_0000000'), { code: 1, stderr: /nothing found(?!.*all 10)/ })
  const cut = { code: 1, stderr: /nothing found.*; give a whole key, or only its first 10 characters\n$/ }
  t.match(await run('lookup', 'lk_00000000'), cut)
  t.match(await run('lookup', tokenFormat('lk').mint()), { code: 1, stderr: /nothing found[^;]*\n$/ })
})

t.test('nothing, or more than there could be, is refused', async (t) => {
  for (const query of ['', '\n', 'x'.repeat(1_000_000)]) {
    const { code, stderr } = await lookUpFromStdin(query)
    t.equal(code, 1)
    t.match(stderr, 'lookup needs 1 to 8192 characters')
  }
  t.match(await lookUpFromStdin('x'.repeat(8192)), { code: 1, stderr: /nothing found/ })
})

// Last: the others need the user.
t.test('a deleted user is found, with the time of the deletion', async (t) => {
  const { deleted_at } = await answerOf('users', 'delete', user.id)
  const { stdout } = await run('lookup', user.id)
  t.match(stdout, /^state +deleted$/m)
  t.match(stdout, `user deleted  ${new Date(deleted_at * 1000).toISOString().replace('.000', '')}`)
})
