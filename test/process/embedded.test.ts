// `latchkey serve` with nothing given: the first key works as printed, and the next start finds everything.
import { execFile } from 'node:child_process'
import { readFile, stat, unlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { openDatabase } from '../services/index.ts'
import { commandLine, processTree, send, waitUntilGone } from '../services/processes.ts'
import { ask } from './ask.ts'
import { embeddedEnv, postmasterOf } from './embedded.ts'
import { lockWaitOf } from './held-at-start.ts'
import { type Env, runLatchkey, serveLatchkey, spawnLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const modeOf = async (path: string) => ((await stat(path)).mode & 0o777).toString(8)
const plainLines = (stdout: string) =>
  stdout.split('\n').filter((line) => line !== '' && !line.startsWith('{'))
const hasCurl = await promisify(execFile)('curl', ['--version']).then(
  () => true,
  () => false,
)

// One story, in which each test goes on where the one before has ended.
// PGSSLMODE is meant for another Postgres.
const env = { ...(await embeddedEnv(t)), PGSSLMODE: 'require', DEFAULT_RATE_LIMIT_RPM: '500' }
const service = await serveLatchkey(t, env)
const shownToken = async () => (await until('the key is shown', () => /lk_\w+/.exec(service.stdout)))[0]

t.test(
  'the first start shows its progress, and prints one key and a curl line that works as printed',
  async (t) => {
    const shown = await until('the key is shown', () => /^ +(curl .*)$/m.exec(service.stdout))
    const lines = plainLines(service.stdout)
    const firstOf = (text: RegExp) => lines.findIndex((line) => text.test(line))
    t.ok(firstOf(/Postgres/) >= 0 && firstOf(/Postgres/) < firstOf(/lk_/))
    const tokens = new Set(service.stdout.match(/lk_\w+/g))
    t.equal(tokens.size, 1, 'one key')
    const [token] = tokens
    t.match(token, /^lk_[0-9A-Za-z]{38}$/)
    t.notOk(
      service.log.some((line) => JSON.stringify(line).includes(token!)),
      'it is not in the log',
    )
    t.equal(service.stderr, '')
    const [, dashboard] = await until('the dashboard is shown', () =>
      /^Dashboard: (.*)$/m.exec(service.stdout),
    )
    t.match(await (await fetch(dashboard!)).text(), '<title>Latchkey</title>')

    t.equal(await modeOf(env.DATA_DIR), '700')
    t.equal(await modeOf(join(env.DATA_DIR, 'hash-secret')), '600')
    t.ok((await readFile(join(env.DATA_DIR, 'hash-secret'), 'utf8')).trim().length >= 32)

    const { status, body } = await ask(`GET ${service.url}/v1/keys`, { token: token! })
    t.equal(status, 200)
    t.equal(body.data.length, 1)
    t.match(body.data[0], { name: 'first key', rate_limit_rpm: 500 })
    if (!hasCurl)
      return void t.pass('the printed line in a shell', { skip: 'there is no curl on this machine' })
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', shown[1]!])
    t.match(stdout, /^HTTP\/1\.1 200 /)
    t.match(JSON.parse(stdout.slice(stdout.indexOf('\r\n\r\n'))), { object: 'list', data: [{ id: /^apk_/ }] })
  },
)

t.test(
  'a later start finds its data and secret and prints no key, after SIGTERM and after kill -9',
  async (t) => {
    const token = await shownToken()
    const secret = await readFile(join(env.DATA_DIR, 'hash-secret'), 'utf8')
    const postmaster = await postmasterOf(env.DATA_DIR)
    t.ok(postmaster)
    service.kill('SIGTERM')
    t.equal((await service.ended).code, 0)
    t.ok(await waitUntilGone([postmaster!], 0), 'Postgres is gone by then')

    const second = await serveLatchkey(t, env)
    const json = { name: 'made before the kill' }
    const made = await ask(`POST ${second.url}/v1/keys`, { token, json })
    t.equal(made.status, 201)
    const refused = await runLatchkey(t, env, 'serve')
    t.equal(refused.code, 1)
    t.match(refused.stderr, /^[^\n]*DATA_DIR[^\n]*\n$/, 'another service on this DATA_DIR ends with one line')
    t.equal((await ask(`GET ${second.url}/v1/verify`, { token })).status, 200, 'and this one goes on')
    second.kill('SIGKILL')
    await second.ended

    const third = await serveLatchkey(t, env)
    t.equal((await ask(`GET ${third.url}/v1/verify`, { token: made.body.plain_key })).status, 200)
    t.equal(await readFile(join(env.DATA_DIR, 'hash-secret'), 'utf8'), secret)
    const taken = await postmasterOf(env.DATA_DIR)
    third.kill('SIGTERM')
    const { stdout, code } = await third.ended
    t.equal(code, 0)
    t.ok(await waitUntilGone([taken!], 0), 'the Postgres that it took over is gone too')
    const dashboard = third.opsUrl.replace('127.0.0.1', 'localhost')
    t.same(plainLines(stdout), [`Dashboard: ${dashboard}/`], 'nothing more but the log')
  },
)

t.test(
  'a lost secret is not replaced while there are keys under it; another HASH_SECRET must be accepted',
  async (t) => {
    const token = await shownToken()
    const verify = async (more: Env) => {
      const service = await serveLatchkey(t, { ...env, ...more })
      const { status } = await ask(`GET ${service.url}/v1/verify`, { token })
      service.kill('SIGTERM')
      await service.ended
      return status
    }
    const file = join(env.DATA_DIR, 'hash-secret')
    const secret = await readFile(file, 'utf8')
    await unlink(file)
    const { code, stderr } = await runLatchkey(t, env, 'serve')
    t.equal(code, 1)
    t.match(stderr, /^[^\n]*hash-secret is missing[^\n]*HASH_SECRET[^\n]*\n$/)
    await t.rejects(stat(file), 'none is made')
    await writeFile(file, secret, { mode: 0o600 })
    t.equal(await verify({}), 200, 'once it is restored, the key is known again')

    const another = { HASH_SECRET: 'another secret of thirty-two characters' }
    const refused = await runLatchkey(t, { ...env, ...another }, 'serve')
    t.equal(refused.code, 1)
    t.match(refused.stderr, /^[^\n]*none of the usable keys[^\n]*ACCEPT_NEW_HASH_SECRET=1[^\n]*\n$/)
    t.equal(await verify({ ...another, ACCEPT_NEW_HASH_SECRET: '1' }), 401)
  },
)

t.test('a second signal ends the service at once, and its Postgres by itself', async (t) => {
  const impatient = await serveLatchkey(t, { ...env, DRAIN_SECONDS: '15' })
  const postmaster = await postmasterOf(env.DATA_DIR)
  impatient.kill('SIGTERM')
  await until('it says that it stops', () => impatient.log.some(({ msg }) => msg === 'stopping'))
  impatient.kill('SIGTERM')
  t.equal((await impatient.ended).code, 1)
  t.match(impatient.log.at(-1), { level: 60, msg: 'second SIGTERM, exiting' })
  t.ok(await waitUntilGone([postmaster!], 30_000), 'nobody has to end it')
})

async function openEmbedded(t: Test) {
  const [, , , port] = (await readFile(join(env.DATA_DIR, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')
  const password = await readFile(join(env.DATA_DIR, 'postgres-password'), 'utf8')
  return openDatabase(t, `postgres://latchkey:${password.trim()}@127.0.0.1:${port}/latchkey`, 2)
}

t.test('a Postgres that is slow at first delays the first key', async (t) => {
  const former = await serveLatchkey(t, env)
  former.kill('SIGKILL')
  await former.ended
  const sql = await openEmbedded(t)
  await sql`truncate users cascade`
  const service = await sql.begin(async (held) => {
    await held`lock table users in share row exclusive mode`
    const service = await serveLatchkey(t, env)
    await lockWaitOf(sql, '%insert into users%')
    await until('it has given up once', async () => {
      const waiting = await sql`select from pg_locks where not granted and relation = 'users'::regclass`
      return waiting.length === 0
    })
    return service
  })
  const token = (await until('the key is shown', () => /lk_\w+/.exec(service.stdout)))[0]
  t.equal((await ask(`GET ${service.url}/v1/verify`, { token })).status, 200)
  await sql`delete from api_keys`
  service.kill('SIGTERM')
  t.equal((await service.ended).code, 0)
})

t.test('if a first start has ended before its key was made, the next one makes it', async (t) => {
  // Other systems have only one address of loopback.
  const host = process.platform === 'linux' ? '127.0.0.2' : '127.0.0.1'
  const service = await serveLatchkey(t, { ...env, HOST: host, OPS_HOST: host })
  const shown = await until('the key is shown', () => /^ +curl -i (http:\S+)\/v1\/keys/m.exec(service.stdout))
  const named = (url: string) => url.replace('127.0.0.1', host === '127.0.0.1' ? 'localhost' : host)
  t.equal(shown[1], named(service.url), 'at the address where it listens')
  const [, dashboard] = await until('the dashboard is shown', () =>
    /^Dashboard: (.*)\/$/m.exec(service.stdout),
  )
  t.equal(dashboard, named(service.opsUrl))
  const sql = await openEmbedded(t)
  await sql`delete from api_keys`
  await sql`update users set deleted_at = now()`
  service.kill('SIGTERM')
  t.equal((await service.ended).code, 0)
})

t.test('a first user who has been deleted gets no key', async (t) => {
  const service = await serveLatchkey(t, env)
  await until('the dashboard is shown', () => service.stdout.includes('Dashboard:'))
  t.notMatch(service.stdout, /lk_/)
  service.kill('SIGTERM')
  t.equal((await service.ended).code, 0)
})

t.test('a Postgres that has ended by itself is in the log', async (t) => {
  const service = await serveLatchkey(t, env)
  await until('it needs Postgres for nothing more', () => service.stdout.includes('Dashboard:'))
  process.kill((await postmasterOf(env.DATA_DIR))!, 'SIGKILL')
  const said = () => service.log.filter(({ msg }) => String(msg).startsWith('the embedded Postgres'))
  await until('it says so', () => said().length > 0)
  t.match(said(), [{ level: 50, reason: /^Postgres .* is gone; its log is / }])
  service.kill('SIGTERM')
  t.equal((await service.ended).code, 0)
})

t.test('Ctrl-C during the set-up, which also reaches initdb, is a stop and no fault', async (t) => {
  const service = await spawnLatchkey(t, await embeddedEnv(t), 'serve')
  const all = await until('initdb runs', async () => {
    const tree = await processTree(service.pid)
    return (await Promise.all(tree.map(commandLine))).some((line) => /initdb/.test(line)) && tree
  })
  send(all, 'SIGINT')
  t.match(await service.ended, { code: 0, signal: null, stderr: '' })
})
