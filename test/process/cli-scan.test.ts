// latchkey keys scan: files of any size, read piece by piece, and stdin; the tokens are printed nowhere.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { open, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { builtCli } from './built.ts'
import { aFolder, externalEnv, openCommandLine, runLatchkey, spawnLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const env = externalEnv(await useServices(t))
const { run, answerOf } = await openCommandLine(t, env)

const user = await answerOf('users', 'create', '--name', 'Ada')
const keyOf = () => answerOf('keys', 'create', '--user', user.id, '--name', 'ci')
const keys = [await keyOf(), await keyOf(), await keyOf(), await keyOf()]
const tokens: string[] = keys.map(({ plain_key }) => plain_key)
/** The first two are cut by a border of two pieces, whichever power of two is their size. */
const content = Buffer.alloc(3_000_000, 'no key, ')
// At the start of a file, these would mark it as UTF-16.
for (let at = 65_536; at < content.length; at += 65_536) content.write('\xff\xfe', at, 'latin1')
content.write(tokens[0]!, 1_048_576 - 20)
content.write(tokens[1]!, 2_097_152 - 1)
content.write(tokens[2]!, 0)
content.write(tokens[3]!, content.length - tokens[3]!.length)
const strange = tokenFormat('lk').mint()
content.write(strange, 500_000)

const states = (stdout: string) =>
  new Map(JSON.parse(stdout)[0].keys.map(({ id, state }: { id: string; state: string }) => [id, state]))

t.test('a file and stdin are scanned to their end', async (t) => {
  const file = join(await aFolder(t), 'leaky.log')
  await writeFile(file, content)
  const { code, stdout, stderr } = await runLatchkey(t, env, 'keys', 'scan', file, '--json')
  t.strictSame([code, stderr], [1, 'latchkey: active keys found: 4; revoke them with --revoke\n'])
  t.same(states(stdout), new Map(keys.map(({ id }) => [id, 'active'])))
  t.equal(JSON.parse(stdout)[0].unknown, 1)

  const child = spawn(process.execPath, [await builtCli(), 'keys', 'scan', '--revoke', '-', '--json'], {
    env,
  })
  child.stdin.on('error', () => {}).end(content)
  const [[fromStdin], found, said] = await Promise.all([
    once(child, 'close'),
    text(child.stdout),
    text(child.stderr),
  ])
  t.strictSame([fromStdin, said], [0, ''])
  t.same(states(found), new Map(keys.map(({ id }) => [id, 'revoked'])))
  for (const token of [...tokens, strange]) t.notMatch(stdout + found, token)
})

t.test('a file that cannot be read is a fault, and the others are scanned', async (t) => {
  const folder = await aFolder(t)
  const { plain_key } = await keyOf()
  const file = join(folder, 'leaky.log')
  await writeFile(file, plain_key)
  t.strictSame(await run('keys', 'scan', folder), {
    code: 1,
    signal: null,
    stdout: 'no file was scanned\n',
    stderr: `latchkey: ${folder}: EISDIR: illegal operation on a directory, read\n`,
  })
  await writeFile(join(folder, 'clean'), 'no key')
  const beside = await run('keys', 'scan', folder, join(folder, 'clean'))
  t.equal(beside.stdout, `no key of this service in ${join(folder, 'clean')}\n`)
  t.match(
    await run('keys', 'scan', file, file),
    { code: 1, stderr: /active keys found: 1;/ },
    'it is one key',
  )
  const words = ['--revoke', join(folder, 'absent'), file, '--json']
  const { code, stdout, stderr } = await run('keys', 'scan', ...words)
  t.match({ code, stderr }, { code: 1, stderr: /^latchkey: \S+absent: ENOENT.*\n$/ })
  t.match(JSON.parse(stdout), [
    { error: /ENOENT/, keys: [] },
    { error: null, keys: [{ state: 'revoked', revoked: true }] },
  ])
})

t.test('a directory as stdin is a fault', async (t) => {
  const folder = openSync('.', 'r')
  const child = spawn(process.execPath, [await builtCli(), 'keys', 'scan', '-', '--json'], {
    env,
    stdio: [folder, 'pipe', 'pipe'],
  })
  closeSync(folder)
  const [[code], stdout, stderr] = await Promise.all([
    once(child, 'close'),
    text(child.stdout!),
    text(child.stderr!),
  ])
  t.strictSame([code, stderr], [1, 'latchkey: -: stdin is a directory\n'])
  t.match(JSON.parse(stdout), [{ file: '-', error: '-: stdin is a directory' }])
})

t.test('a key of a deleted user is named, and is no active one', async (t) => {
  const file = join(await aFolder(t), 'leaky.log')
  const owner = await answerOf('users', 'create', '--name', 'left')
  const { id, key_prefix, plain_key } = await answerOf('keys', 'create', '--user', owner.id, '--name', 'ci')
  await run('users', 'delete', owner.id)
  await writeFile(file, plain_key)
  t.match(await run('keys', 'scan', file), {
    ...{ code: 0, stderr: /^$/ },
    stdout: `${id}  ${key_prefix}  owner_deleted  ${owner.id}\n`,
  })
})

t.test('people see what was revoked, and how many tokens are unknown', async (t) => {
  const file = join(await aFolder(t), 'leaky.log')
  const { id, key_prefix, plain_key } = await keyOf()
  await writeFile(file, `${plain_key} ${strange}`)
  const { code, stdout } = await run('keys', 'scan', '--revoke', file)
  t.equal(code, 0)
  t.match(stdout, `${id}  ${key_prefix}  revoked now  ${user.id}\n1 tokens of the same shape`)
})

t.test('while Redis is down, it says once that it waits, however many keys it revokes', async (t) => {
  const file = join(await aFolder(t), 'leaky.log')
  await writeFile(file, `${(await keyOf()).plain_key} ${(await keyOf()).plain_key}`)
  const down = { ...env, REDIS_URL: 'redis://127.0.0.1:1', KEY_CACHE_SECONDS: '2', OUTAGE_CACHE_SECONDS: '0' }
  const { code, stderr } = await runLatchkey(t, down, 'keys', 'scan', '--revoke', file)
  t.strictSame([code, stderr], [0, 'The change is stored. Waiting until every instance sees it\n'])
})

t.test('one that is stopped shows what it has revoked, and that there was more to read', async (t) => {
  const sql = openDatabase(t, env.DATABASE_URL!)
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    const { id, plain_key } = await keyOf()
    const words = ['keys', 'scan', '--revoke', '-', 'not reached', '--json']
    const child = spawn(process.execPath, [await builtCli(), ...words], { env })
    child.stdin.on('error', () => {}).write(`${plain_key}\n`)
    const ended = Promise.all([once(child, 'close'), text(child.stdout), text(child.stderr)])
    await until(
      'the key is revoked',
      async () => (await sql`select from api_keys where id = ${id} and revoked_at is not null`).length > 0,
    )
    child.kill(signal)
    const [how, stdout, stderr] = await ended
    const error = 'the scan was stopped before its end'
    t.strictSame([how, stderr], [[1, null], `latchkey: ${error}\n`])
    t.match(JSON.parse(stdout || '[]'), [
      { file: '-', error, keys: [{ id, state: 'revoked', revoked: true }] },
      { file: 'not reached', error, keys: [] },
    ])
  }
})

t.test('so does one that waits for more of a named pipe', async (t) => {
  const pipe = join(await aFolder(t), 'pipe')
  spawnSync('mkfifo', [pipe])
  const writer = await open(pipe, 'r+')
  t.teardown(() => writer.close())
  const { id, plain_key } = await keyOf()
  await writer.write(`${plain_key}\n`)
  const sql = openDatabase(t, env.DATABASE_URL!)
  const scan = await spawnLatchkey(t, env, 'keys', 'scan', '--revoke', pipe, '--json')
  await until(
    'the key is revoked',
    async () => (await sql`select from api_keys where id = ${id} and revoked_at is not null`).length > 0,
  )
  scan.kill('SIGINT')
  const { code, signal, stdout } = await scan.ended
  t.strictSame([code, signal], [1, null])
  const error = 'the scan was stopped before its end'
  t.match(JSON.parse(stdout || '[]'), [{ error, keys: [{ id, state: 'revoked', revoked: true }] }])
})

t.test('one that waits for the writer of a named pipe can be stopped too', async (t) => {
  const folder = await aFolder(t)
  const [first, pipe] = [join(folder, 'first'), join(folder, 'pipe')]
  spawnSync('mkfifo', [first, pipe])
  const scan = await spawnLatchkey(t, env, 'keys', 'scan', first, pipe, '--json')
  // Opens when the scan does; the scan is at the second pipe soon after.
  await (await open(first, 'w')).close()
  scan.kill('SIGINT')
  const { code, signal, stdout } = await scan.ended
  t.strictSame([code, signal], [1, null])
  t.match(JSON.parse(stdout || '[]')[1], { file: pipe, error: 'the scan was stopped before its end' })
})

t.test('a slow reader gets the whole of a long answer, even of a command that fails', async (t) => {
  const folder = await aFolder(t)
  const [leaky, clean] = [join(folder, 'leaky'), join(folder, 'clean')]
  await writeFile(leaky, (await keyOf()).plain_key)
  await writeFile(clean, 'no key')
  const files = [leaky, ...Array<string>(5000).fill(clean)]
  const words = [process.execPath, await builtCli(), 'keys', 'scan', '--json', ...files]
  // Each file is closed before the next.
  const child = spawn('sh', ['-c', 'ulimit -n 500; exec "$@"', 'sh', ...words], { env })
  t.match(String((await once(child.stderr, 'data'))[0]), /^latchkey: active keys found: 1/)
  const [[code], found] = await Promise.all([once(child, 'close'), text(child.stdout)])
  t.equal(code, 1)
  t.equal(JSON.parse(found).length, files.length)
})

t.test('UTF-16 is not read as text', async (t) => {
  const folder = await aFolder(t)
  const { plain_key } = await keyOf()
  const withMark = Buffer.from(`\ufeff${plain_key}`, 'utf16le')
  const withoutMark = Buffer.from(`a log line\n${plain_key}`, 'utf16le')
  const swapped = [withMark, withoutMark].map((little) => Buffer.from(little).swap16())
  // However a power of two cuts it.
  const acrossBorder = Buffer.from(`${' '.repeat(131_071)}${plain_key}`, 'utf16le')
  for (const content of [withMark, withoutMark, ...swapped, acrossBorder]) {
    const file = join(folder, 'leaky.txt')
    await writeFile(file, content)
    const { code, stdout, stderr } = await runLatchkey(t, env, 'keys', 'scan', file)
    t.strictSame([code, stdout], [1, 'no file was scanned\n'])
    t.equal(stderr, `latchkey: ${file}: cannot be read as text: it is UTF-16; convert it to UTF-8 first\n`)
  }
})

t.test('a key that cannot be revoked keeps no other one alive, in this piece or a later one', async (t) => {
  const [stuck, beside, later] = [await keyOf(), await keyOf(), await keyOf()]
  const sql = openDatabase(t, env.DATABASE_URL!)
  await sql`alter table api_keys add constraint one_is_stuck check (id <> ${sql.unsafe(`'${stuck.id}'`)} or revoked_at is null)`
  t.teardown(() => sql`alter table api_keys drop constraint one_is_stuck`)
  const file = join(await aFolder(t), 'leaky.log')
  await writeFile(file, [stuck.plain_key, beside.plain_key, Buffer.alloc(1_000_000, ' '), later.plain_key])
  const { code, stdout, stderr } = await run('keys', 'scan', '--revoke', file, '--json')
  t.match(
    { code, stderr },
    { code: 1, stderr: /one_is_stuck.*active keys found: 1; run the command again\n$/ },
  )
  t.same(
    states(stdout),
    new Map([stuck, beside, later].map(({ id }) => [id, id === stuck.id ? 'active' : 'revoked'])),
  )
})
