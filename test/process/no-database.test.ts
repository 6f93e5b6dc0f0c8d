// The command line started without its environment: it says that there is no database here, and makes none.
import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { requireDatabase } from '../../src/embedded/data-dir.ts'
import { readOrCreateHashSecret } from '../../src/embedded/hash-secret.ts'
import { embeddedEnv } from './embedded.ts'
import { aFolder, openCommandLine, runLatchkey } from './latchkey.ts'

const commands = [
  ['users', 'list'],
  ['users', 'delete', 'usr_0'],
  ['keys', 'create', '--user', 'usr_0', '--name', 'x'],
  ['keys', 'list', '--user', 'usr_0'],
  ['keys', 'revoke', 'apk_0'],
  ['keys', 'rehash-status'],
  ['audit', 'find', 'req_0'],
  ['audit', 'list'],
]

t.test('what needs a database makes none: it names the folder that has none, and what to do', async (t) => {
  const { folder, run } = await openCommandLine(t, {})
  for (const words of commands) {
    t.strictSame(await run(...words), {
      code: 1,
      signal: null,
      stdout: '',
      stderr: `latchkey: ${join(folder, '.latchkey')} has no database: set DATABASE_URL or DATA_DIR as for the service, or run \`latchkey serve\` first\n`,
    })
    t.strictSame(await readdir(folder), [], 'nothing is left behind')
  }
})

t.test('a DATA_DIR that is there and empty stays empty', async (t) => {
  const DATA_DIR = await aFolder(t)
  const { run } = await openCommandLine(t, { DATA_DIR })
  t.match(await run('users', 'list'), { code: 1, stderr: `${DATA_DIR} has no database` })
  t.strictSame(await readdir(DATA_DIR), [])
  await mkdir(join(DATA_DIR, 'postgres'))
  t.match(await run('users', 'list'), { code: 1, stderr: `${DATA_DIR} has no database` })
  t.strictSame(await readdir(DATA_DIR), ['postgres'])
})

t.test('a DATA_DIR that only another user can read is reported as closed, not as empty', async (t) => {
  const parent = await aFolder(t)
  const folder = join(parent, 'data')
  await mkdir(folder, { mode: 0o000 })
  await chmod(parent, 0o755)
  const isRoot = process.geteuid?.() === 0
  if (isRoot) process.seteuid?.('nobody')
  try {
    t.throws(() => requireDatabase(folder), { message: `DATA_DIR ${folder} is closed to this user` })
  } finally {
    if (isRoot) process.seteuid?.(0)
    await chmod(folder, 0o700)
  }
})

t.test(
  'a secret file that is empty or not text is an error: a new secret could not be stored in it',
  async (t) => {
    const folder = await aFolder(t)
    const file = join(folder, 'hash-secret')
    await writeFile(file, '\n')
    await t.rejects(
      readOrCreateHashSecret(folder, async () => false),
      { message: `${file} is empty: restore its content` },
    )
    await writeFile(file, 'restored by a redirection of PowerShell', 'utf16le')
    await t.rejects(
      readOrCreateHashSecret(folder, async () => false),
      { message: `${file} is not a UTF-8 text file` },
    )
  },
)

t.test('migrate and users create make one, and the others find it', async (t) => {
  const env = await embeddedEnv(t)
  t.equal((await runLatchkey(t, env, 'migrate')).code, 0)
  t.ok(existsSync(join(env.DATA_DIR, 'postgres', 'PG_VERSION')))
  t.equal((await runLatchkey(t, env, 'users', 'list')).code, 0)
  const another = await embeddedEnv(t)
  t.equal((await runLatchkey(t, another, 'users', 'create', '--name', 'Ada')).code, 0)
  t.match((await runLatchkey(t, another, 'users', 'list')).stdout, 'Ada')
})
