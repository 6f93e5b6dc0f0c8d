// A key is put to use, rightly and in every wrong place, on a service that then crashes; then it is sought in all that is left.
// The one place where it may be is the answer to its creation. (And the name of a key, for whoever puts it there.)
import { readFile } from 'node:fs/promises'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { externalEnv, runLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { startPrivatePostgres, startPrivateRedis, useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { mintByCommand, misusesByCommand } from './canary-commands.ts'
import { type Forms, formsOf, formsOfKey, found, layersOf } from './canary-forms.ts'
import { live, type Sent } from './canary-life.ts'
import { send } from './canary-misuses.ts'
import { listenToRedis, type Remains, tellAll } from './canary-remains.ts'

const hashSecret = 'Hs7pQ2vX9mZ4kW8rT3yB6nC1dF5gJ0aL'
const databasePassword = 'Dp4xN8vK2qM6wR9tY3zB'
const redisPassword = 'Rp5jH7cV3bN9mQ1wE8rT'

t.test('what a key could be left as is found, and nothing else is', async (t) => {
  const key = tokenFormat('lk').mint()
  const hex = Buffer.from(key).toString('hex')
  const left: Record<string, string> = {
    'as it is': `x${key}y`,
    'cut off': key.slice(0, 26),
    'its end': key.slice(20),
    'in hex': hex,
    'in upper-case hex': hex.toUpperCase(),
    'percent-encoded': hex.replace(/../g, '%$&'),
    'percent-encoded twice': hex.replace(/../g, '%25$&'),
    'percent-encoded in places': key.replace(/[a-m]/g, (letter) => `%${letter.charCodeAt(0).toString(16)}`),
    'the user of Basic': Buffer.from(`${key}:`).toString('base64'),
    'the password of Basic': Buffer.from(`a:${key}`).toString('base64'),
    'the password of a longer user': Buffer.from(`ab:${key}`).toString('base64'),
    'two bytes a letter': Buffer.from(key, 'utf16le').toString('latin1'),
  }
  for (const [how, text] of Object.entries(left)) {
    t.not(found(layersOf(Buffer.from(text, 'latin1')), formsOfKey(key)).length, 0, how)
  }
  t.strictSame(
    found(layersOf(`${key.slice(0, 10)} ${tokenFormat('lk').mint()}`), formsOfKey(key)),
    [],
    'its public beginning is not it',
  )
})

t.test('a key is left nowhere but in the answer to its creation', async (t) => {
  const redis = await startPrivateRedis(t, {
    args: ['--requirepass', redisPassword, '--rdbcompression', 'no'],
  })
  if (redis === null) return
  const pg = await startPrivatePostgres(t)
  const sql = postgres(pg.url, { max: 1, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  const postgresFiles = await tellAll(sql)
  const redisUrl = redis.url.replace('://', `://:${redisPassword}@`)
  const ear = await listenToRedis(t, redisUrl)
  const databaseUrl = pg.url.replace('@', `:${databasePassword}@`)
  const more = { HASH_SECRET: hashSecret, LOG_LEVEL: 'trace', TRUST_PROXY: '1' }
  const env = externalEnv({ databaseUrl, redisUrl }, more)

  const admin = await mintByCommand(t, env)
  const first = await live(t, env, 'exception')
  const posted = await first.mint(admin.token, 1_000_000)
  const limited = await first.mint(admin.token, 1)
  const stray = tokenFormat('lk').mint()
  await first.misuse(posted.token, admin.token)
  await first.misuse(posted.token, null)
  await first.misuse(posted.token, limited.token)
  await first.misuse(posted.token, null, first.opsPort)
  for (const token of soaking ? [admin.token, stray] : []) {
    await first.misuse(token, null)
    await first.misuse(token, admin.token)
  }
  const early = await ear.remains()

  // The service is refused by its own Redis, and logs why.
  await ear.client.config('SET', 'requirepass', 'another')
  await ear.client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
  await first.misuse(stray, admin.token)
  await ear.client.config('SET', 'requirepass', redisPassword)

  await Promise.all([redis.kill(), pg.kill()])
  await first.misuse(posted.token, null)
  if (soaking) await first.misuse(admin.token, posted.token)
  await Promise.all([redis.restart(), pg.restart()])
  const isBack = async () =>
    (await send(first.service.port, { headers: [`Authorization: Bearer ${admin.token}`] })).status === 200
  await until('it is whole again', isBack)
  const metrics = await first.readMetrics()
  const firstLeft = await first.crash(admin.token)

  const second = await live(t, env, 'abort')
  await second.use(posted.token, posted.id)
  const secondLeft = await second.crash(admin.token)

  const audit = await runLatchkey(t, env, 'audit', 'list', '--limit', '10000', '--json')
  const remains: Remains = {
    ...Object.fromEntries(
      Object.entries(early).map(([place, bytes]) => [`${place} before the outage`, bytes]),
    ),
    ...(await ear.remains()),
    ...metrics,
    ...firstLeft,
    ...secondLeft,
    'the audit log': audit.stdout,
    'what the commands printed': admin.printed + audit.stderr,
    'the files of Postgres': await postgresFiles(),
  }
  const sent = [...first.sent, ...second.sent]
  expectRead(t, remains, sent, admin.id)
  const secrets: Record<string, Forms> = {
    'the key by the command line': formsOfKey(admin.token),
    'the key by POST': formsOfKey(posted.token),
    'the key with a limit': formsOfKey(limited.token),
    'the key that never was': formsOfKey(stray),
    HASH_SECRET: formsOf(hashSecret),
    "the database's password": formsOf(databasePassword),
    "Redis's password": formsOf(redisPassword),
  }
  let hits = 0
  for (const [place, bytes] of Object.entries(remains)) {
    const layers = layersOf(bytes)
    for (const [secret, forms] of Object.entries(secrets)) {
      const there = found(layers, forms)
      t.strictSame(there, [], `${secret} is not in ${place}`)
      hits += there.length
    }
  }
  for (const [secret, forms] of Object.entries(secrets)) {
    const telling = sent.filter(({ answer }) => found(layersOf(answer.raw), forms).length > 0)
    t.strictSame(telling.map(told), [], `${secret} is in no answer`)
    hits += telling.length
  }
  expectNoInnards(t, sent)
  recordFigure(t, 'canary', { requests: sent.length, places: Object.keys(remains).length, hits })
})

const told = ({ what, answer }: Sent) => `${what}: ${answer.raw}`

/** Nothing is found in what was not read, nor where nothing happened. */
function expectRead(t: Test, remains: Remains, sent: Sent[], adminId: string) {
  const statuses = new Set(sent.map(({ answer }) => answer.status))
  for (const status of [200, 400, 401, 404, 405, 413, 415, 429, 431, 503]) {
    t.ok(statuses.has(status), `${status} is among the answers`)
  }
  t.notOk(statuses.has(500), 'and no 500')
  const refused = sent.findLast(({ answer }) => answer.status === 401)!.answer.body.error.request_id
  const marks: Record<string, string> = {
    'the audit log': refused,
    'the files of Postgres': refused,
    'stdout of the one that ended by abort': refused,
    'stdout of the one that ended by exception': 'Error: crash',
    'what Redis was told': adminId,
    'what Redis keeps': adminId,
    'the files of Redis': adminId,
    '/metrics of the ops listener': 'latchkey_requests_total',
    'what the commands printed': adminId,
  }
  for (const [place, mark] of Object.entries(marks))
    t.ok(remains[place]?.includes(mark), `${place}: really read`)
}

/** What would tell a client how the service is made, or where its fault is. */
function expectNoInnards(t: Test, sent: Sent[]) {
  const innards = [
    /\bat .*:[0-9]+:[0-9]+/,
    /\.[tj]s:/,
    /node_modules/,
    /node:/,
    /\b(?:select|insert|update) /i,
    /api_keys/,
    /relation/,
    /postgres|redis/i,
  ]
  for (const pattern of innards) {
    t.strictSame(
      sent.filter(({ answer }) => pattern.test(answer.raw)).map(told),
      [],
      `${pattern} is in no answer`,
    )
  }
}

t.test('the command line does not repeat a key that was given it in the wrong place', async (t) => {
  const env = externalEnv(await useServices(t))
  const key = tokenFormat('lk').mint()
  const left = misusesByCommand(key).slice(0, scaled(3, Number.POSITIVE_INFINITY))
  const work = async () => {
    for (let words = left.shift(); words; words = left.shift()) {
      const { stdout, stderr } = await runLatchkey(t, env, ...words)
      t.strictSame(
        found(layersOf(stdout + stderr), formsOfKey(key)),
        [],
        words.map((word) => word.replace(key, '<key>')).join(' '),
      )
    }
  }
  await Promise.all([work(), work()])
})

t.test('the image runs as nobody special, and the compose file with nothing to write to', async (t) => {
  const read = (name: string) => readFile(new URL(`../../${name}`, import.meta.url), 'utf8')
  const stages = (await read('Dockerfile')).split(/^FROM /m)
  const [, user] = /^USER ([0-9]+):[0-9]+$/m.exec(stages.at(-1)!) ?? []
  t.ok(Number(user) > 0, 'a user by number, so that runAsNonRoot can check it')
  t.notMatch(stages.at(-1), /chown|chmod/, 'who owns none of what is there')
  const [, service] = /^ {2}latchkey:\n((?: {4}.*\n|\n)+)/m.exec(await read('compose.yaml')) ?? []
  t.match(service, /^ {4}read_only: true$/m)
  t.match(service, /^ {4}cap_drop: \[ALL\]$/m)
  t.match(service, /^ {4}security_opt: \[no-new-privileges:true\]$/m)
  t.match(await read('docs/operations.md'), /docker run --read-only/)
})
