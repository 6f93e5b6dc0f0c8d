// `latchkey serve` with nothing given: the first key works as it is printed, and everything is there again at the next start.
import { execFile } from 'node:child_process'
import { readFile, stat, unlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { waitUntilGone } from '../services/processes.ts'
import { ask } from './ask.ts'
import { embeddedEnv, postmasterOf } from './embedded.ts'
import { runLatchkey, serveLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const modeOf = async (path: string) => ((await stat(path)).mode & 0o777).toString(8)
const plainLines = (stdout: string) =>
  stdout.split('\n').filter((line) => line !== '' && !line.startsWith('{'))
const hasCurl = await promisify(execFile)('curl', ['--version']).then(
  () => true,
  () => false,
)

t.test(
  'the first start tells how it gets on, and prints one key and a curl line that works as printed',
  async (t) => {
    const env = await embeddedEnv(t)
    const service = await serveLatchkey(t, env)
    const shown = await until('the key is shown', () => /^ +(curl .*)$/m.exec(service.stdout))
    const lines = plainLines(service.stdout)
    t.ok(lines.findIndex((line) => /Postgres/.test(line)) < lines.findIndex((line) => /lk_/.test(line)))
    const tokens = new Set(service.stdout.match(/lk_\w+/g))
    t.equal(tokens.size, 1, 'one key')
    const [token] = tokens
    t.match(token, /^lk_[0-9A-Za-z]{38}$/)
    t.notOk(
      service.log.some((line) => JSON.stringify(line).includes(token!)),
      'the log has it not',
    )
    t.equal(service.stderr, '')

    t.equal(await modeOf(env.DATA_DIR), '700')
    t.equal(await modeOf(join(env.DATA_DIR, 'hash-secret')), '600')
    t.ok((await readFile(join(env.DATA_DIR, 'hash-secret'), 'utf8')).trim().length >= 32)

    const { status, body } = await ask(`GET ${service.url}/v1/keys`, { token: token! })
    t.equal(status, 200)
    t.equal(body.data.length, 1)
    if (!hasCurl)
      return void t.pass('the printed line in a shell', { skip: 'there is no curl on this machine' })
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', shown[1]!])
    t.match(stdout, /^HTTP\/1\.1 200 /)
    t.match(JSON.parse(stdout.slice(stdout.indexOf('\r\n\r\n'))), { object: 'list', data: [{ id: /^apk_/ }] })
  },
)

t.test(
  'a later start finds its data and secret, prints no key, and SIGTERM leaves no Postgres behind',
  async (t) => {
    const env = await embeddedEnv(t)
    const first = await serveLatchkey(t, env)
    const token = (await until('the key is shown', () => /lk_\w+/.exec(first.stdout)))[0]
    const secret = await readFile(join(env.DATA_DIR, 'hash-secret'), 'utf8')
    const postmaster = await postmasterOf(env.DATA_DIR)
    t.ok(postmaster)
    first.kill('SIGTERM')
    t.equal((await first.ended).code, 0)
    t.ok(await waitUntilGone([postmaster!], 0), 'Postgres is gone by then')

    const second = await serveLatchkey(t, env)
    t.equal((await ask(`GET ${second.url}/v1/verify`, { token })).status, 200)
    t.equal(await readFile(join(env.DATA_DIR, 'hash-secret'), 'utf8'), secret)
    second.kill('SIGTERM')
    const { stdout, code } = await second.ended
    t.equal(code, 0)
    t.notMatch(stdout, /lk_/, 'no key')
    t.same(plainLines(stdout), [], 'nothing but the log')
  },
)

t.test('after kill -9 it starts again on its data', async (t) => {
  const env = await embeddedEnv(t)
  const first = await serveLatchkey(t, env)
  const token = (await until('the key is shown', () => /lk_\w+/.exec(first.stdout)))[0]
  const json = { name: 'made before the kill' }
  const { status, body } = await ask(`POST ${first.url}/v1/keys`, { token, json })
  t.equal(status, 201)
  first.kill('SIGKILL')
  await first.ended

  const second = await serveLatchkey(t, env)
  t.equal((await ask(`GET ${second.url}/v1/verify`, { token: body.plain_key })).status, 200)
  t.notMatch(second.stdout, /lk_/, 'no key is printed')
  const postmaster = await postmasterOf(env.DATA_DIR)
  second.kill('SIGTERM')
  t.equal((await second.ended).code, 0)
  t.ok(await waitUntilGone([postmaster!], 0), 'the Postgres that it found or started is gone with it')
})

t.test('after kill -9 of Postgres too it starts again on its data', async (t) => {
  const env = await embeddedEnv(t)
  const first = await serveLatchkey(t, env)
  const token = (await until('the key is shown', () => /lk_\w+/.exec(first.stdout)))[0]
  const postmaster = (await postmasterOf(env.DATA_DIR))!
  first.kill('SIGKILL')
  process.kill(postmaster, 'SIGKILL')
  await first.ended
  const second = await serveLatchkey(t, env)
  t.equal((await ask(`GET ${second.url}/v1/verify`, { token })).status, 200)
})

t.test('a second service on the same DATA_DIR ends with one line, and the first goes on', async (t) => {
  const env = await embeddedEnv(t)
  const first = await serveLatchkey(t, env)
  const { code, stderr } = await runLatchkey(t, env, 'serve')
  t.equal(code, 1)
  t.match(stderr, /^[^\n]*DATA_DIR[^\n]*\n$/)
  t.equal((await ask(`GET ${first.url}/v1/verify`)).status, 401)
})

t.test('a secret that is lost is not replaced while there are keys that only it knows', async (t) => {
  const env = await embeddedEnv(t)
  const first = await serveLatchkey(t, env)
  const token = (await until('the key is shown', () => /lk_\w+/.exec(first.stdout)))[0]
  first.kill('SIGTERM')
  await first.ended
  const file = join(env.DATA_DIR, 'hash-secret')
  const secret = await readFile(file, 'utf8')
  await unlink(file)
  const { code, stderr } = await runLatchkey(t, env, 'serve')
  t.equal(code, 1)
  t.match(stderr, /^[^\n]*hash-secret is missing[^\n]*HASH_SECRET[^\n]*\n$/)
  await t.rejects(stat(file), 'none is made')
  await writeFile(file, secret, { mode: 0o600 })
  const second = await serveLatchkey(t, env)
  t.equal((await ask(`GET ${second.url}/v1/verify`, { token })).status, 200, 'and restored it is as before')
})

t.test('a HASH_SECRET that is given is the one in use: of another one, it has to be accepted', async (t) => {
  const env = await embeddedEnv(t)
  const first = await serveLatchkey(t, env)
  const token = (await until('the key is shown', () => /lk_\w+/.exec(first.stdout)))[0]
  first.kill('SIGTERM')
  await first.ended
  const another = { ...env, HASH_SECRET: 'another secret of thirty-two characters' }
  const { code, stderr } = await runLatchkey(t, another, 'serve')
  t.equal(code, 1)
  t.match(stderr, /^[^\n]*none of the usable keys[^\n]*ACCEPT_NEW_HASH_SECRET=1[^\n]*\n$/)
  const second = await serveLatchkey(t, { ...another, ACCEPT_NEW_HASH_SECRET: '1' })
  t.equal((await ask(`GET ${second.url}/v1/verify`, { token })).status, 401)
})
