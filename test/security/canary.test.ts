// A key is used, rightly and in every wrong place, with a service that then crashes. Afterwards it
// is in nothing that is left, and neither are the operators' tokens. The one place where it may be is
// the response that creates it. (And the name of a key, if somebody puts it there.)
import { readFile } from 'node:fs/promises'
import t, { type Test } from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { externalEnv, openCommandLine, runLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { openDatabase, startPrivatePostgres, startPrivateRedis, useServices } from '../services/index.ts'
import { recordFigure, soaking } from '../soak.ts'
import { type Forms, formsOf, formsOfKey, found, layersOf } from './canary-forms.ts'
import { live, type Sent, send } from './canary-life.ts'
import { closing } from './canary-misuses.ts'
import { listenToRedis, logEverything, type Remains } from './canary-remains.ts'
import { bearer } from './requests.ts'

const hashSecret = 'Hs7pQ2vX9mZ4kW8rT3yB6nC1dF5gJ0aL'
const databasePassword = 'Dp4xN8vK2qM6wR9tY3zB'
const redisPassword = 'Rp5jH7cV3bN9mQ1wE8rT'
const operatorToken = 'Op6tW3zL9cG5hY2uX8sE4mQ7vB1nR5kJ0dF8'
const metricsToken = 'Mt8dK4nV7pS1jB6fQ3xA9gR5wE2hZ6yC4uL0'

t.test('every form in which a key could be left is found, and nothing else is', async (t) => {
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

type Run = Awaited<ReturnType<typeof openCommandLine>>['run']

/**
 * A key that the command line creates, and everything that was printed except the key in its own
 * place.
 */
async function createByCommand(run: Run) {
  const user = await run('users', 'create', '--name', 'Ada', '--json')
  const owned = ['--user', JSON.parse(user.stdout).id, '--json']
  const wanted = ['--name', 'x', '--rate-limit-rpm', '1000000000']
  const created = await run('keys', 'create', ...wanted, ...owned)
  const { id, plain_key: token } = JSON.parse(created.stdout)
  const listed = await run('keys', 'list', ...owned)
  const all = [user, { ...created, stdout: created.stdout.replace(token, '') }, listed]
  return { id, token, printed: all.map(({ stdout, stderr }) => stdout + stderr).join('\n') }
}

t.test('a key is nowhere but in the response that creates it', async (t) => {
  const redis = await startPrivateRedis(t, {
    args: ['--requirepass', redisPassword, '--rdbcompression', 'no'],
  })
  if (redis === null) return
  const pg = await startPrivatePostgres(t)
  const sql = openDatabase(t, pg.url)
  const postgresFiles = await logEverything(sql)
  const redisUrl = redis.url.replace('://', `://:${redisPassword}@`)
  const listener = await listenToRedis(t, redisUrl)
  const databaseUrl = pg.url.replace('@', `:${databasePassword}@`)
  const tokens = { OPS_TOKEN: operatorToken, METRICS_TOKEN: metricsToken }
  const more = { HASH_SECRET: hashSecret, ...tokens, LOG_LEVEL: 'trace', TRUST_PROXY: '1' }
  const env = externalEnv({ databaseUrl, redisUrl }, more)

  const { run } = await openCommandLine(t, env)
  const admin = await createByCommand(run)
  const first = await live(t, env, 'exception')
  const posted = await first.mint(admin.token, 1_000_000)
  const limited = await first.mint(admin.token, 1)
  const unknown = tokenFormat('lk').mint()
  await first.misuse(posted.token, admin.token)
  await first.misuse(posted.token, null)
  await first.misuse(posted.token, limited.token)
  await first.misuse(posted.token, operatorToken, first.opsPort)
  await first.misuse(operatorToken, operatorToken, first.opsPort)
  for (const token of [operatorToken, metricsToken]) await first.misuse(token, null)
  for (const token of soaking ? [admin.token, unknown] : []) {
    await first.misuse(token, null)
    await first.misuse(token, admin.token)
  }
  const early = Object.entries(await listener.remains())

  // Redis refuses the service, which logs why.
  await listener.client.config('SET', 'requirepass', 'another')
  await listener.client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
  await first.misuse(unknown, admin.token)
  await listener.client.config('SET', 'requirepass', redisPassword)

  await Promise.all([redis.kill(), pg.kill()])
  await first.misuse(posted.token, null)
  if (soaking) await first.misuse(admin.token, posted.token)
  await Promise.all([redis.restart(), pg.restart()])
  const list = closing('GET', '/v1/keys', [bearer(admin.token)])
  await until('it works again', async () => (await send(first.port, list)).status === 200)
  const ops: Remains = {}
  for (const target of ['/metrics', '/readyz', '/healthz', '/'])
    ops[`${target} of the ops listener`] = (
      await send(first.opsPort, closing('GET', target, [bearer(metricsToken)]))
    ).raw
  const firstLeft = await first.crash(admin.token)

  const second = await live(t, env, 'abort')
  await second.use(posted.token, posted.id)
  const secondLeft = await second.crash(admin.token)

  const audit = await run('audit', 'list', '--limit', '10000', '--json')
  const remains: Remains = {
    ...Object.fromEntries(early.map(([place, bytes]) => [`${place} before the outage`, bytes])),
    ...(await listener.remains()),
    ...ops,
    ...firstLeft,
    ...secondLeft,
    'the audit log': audit.stdout,
    'what the commands printed': admin.printed + audit.stderr,
    'the files of Postgres': await postgresFiles(),
  }
  const sent = [...first.sent, ...second.sent]
  expectRead(t, remains, sent, admin.id)
  const secrets: Record<string, Forms> = {
    'the key from the command line': formsOfKey(admin.token),
    'the key from POST': formsOfKey(posted.token),
    'the key with a limit': formsOfKey(limited.token),
    'the key that never existed': formsOfKey(unknown),
    HASH_SECRET: formsOf(hashSecret),
    OPS_TOKEN: formsOf(operatorToken),
    METRICS_TOKEN: formsOf(metricsToken),
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
  for (const [what, raw] of sent.map(({ what, raw }) => [what, raw] as const)) {
    const layers = layersOf(raw)
    const there = Object.keys(secrets).filter((secret) => found(layers, secrets[secret]!).length > 0)
    if (there.length > 0) t.fail(`${there} in the response to ${what}: ${raw}`)
    hits += there.length
    const innards = revealing.filter((pattern) => pattern.test(raw))
    if (innards.length > 0) t.fail(`${innards} in the response to ${what}: ${raw}`)
  }
  recordFigure(t, 'canary', { requests: sent.length, places: Object.keys(remains).length, hits })
})

/** Would tell a client how the service is built, or where its fault is. */
const revealing = [
  ...[/\bat .*:[0-9]+:[0-9]+/, /\.[tj]s:/, /node_modules/, /node:/],
  ...[/\b(?:select|insert|update) /i, /api_keys/, /relation/, /postgres|redis/i],
]

/** A search of places that were not read, or where nothing happened, would find nothing either. */
function expectRead(t: Test, remains: Remains, sent: Sent[], adminId: string) {
  const statuses = new Set(sent.map(({ status }) => status))
  const wanted = [200, 400, 401, 404, 405, 413, 415, 429, 431, 503]
  t.strictSame(
    wanted.filter((status) => !statuses.has(status)),
    [],
    'all these are among the responses',
  )
  t.notOk(statuses.has(500), 'and no 500')
  const refused = sent.findLast(({ status }) => status === 401)!.body.error.request_id
  const marks: Record<string, string> = {
    'the audit log': refused,
    'the files of Postgres': refused,
    'stdout of the one that ended by abort': refused,
    'stdout of the one that ended by exception': 'Error: crash',
    'the commands sent to Redis': adminId,
    'the data of Redis': adminId,
    'the files of Redis': adminId,
    '/metrics of the ops listener': 'latchkey_requests_total',
    'what the commands printed': adminId,
  }
  for (const [place, mark] of Object.entries(marks))
    t.ok(remains[place]?.includes(mark), `${place}: was read`)
}

t.test('the command line does not repeat a key that it was given in the wrong place', async (t) => {
  const env = externalEnv(await useServices(t))
  const key = tokenFormat('lk').mint()
  const misuses = [
    ['keys', 'revoke', key],
    [key],
    ['audit', 'list', '--key', key],
    ['keys', 'list', '--user', key],
    ['serve', key],
    [`--${key}`],
    ['keys', key],
    ['keys', 'create', '--name', 'x', '--user', key],
    ['keys', 'create', '--name', 'x', '--user', 'usr_0', '--rate-limit-rpm', key],
    ['users', 'delete', key],
    ['audit', 'find', key],
    ['audit', 'list', '--reason', key],
    ['audit', 'list', '--since', key],
  ]
  const { run } = await openCommandLine(t, env)
  for (const words of misuses) {
    const ended = words[0] === 'serve' ? await runLatchkey(t, env, ...words) : await run(...words)
    const shown = words.map((word) => word.replace(key, '<key>')).join(' ')
    t.strictSame(found(layersOf(ended.stdout + ended.stderr), formsOfKey(key)), [], shown)
  }
})

t.test('the image runs as an ordinary user, who owns nothing in it', async (t) => {
  const read = (name: string) => readFile(new URL(`../../${name}`, import.meta.url), 'utf8')
  const stages = (await read('Dockerfile')).split(/^FROM /m)
  const [, user] = /^USER ([0-9]+):[0-9]+$/m.exec(stages.at(-1)!) ?? []
  t.ok(Number(user) > 0, 'a user by number, so that runAsNonRoot can check it')
  t.notMatch(stages.at(-1), /chown|chmod/, 'which owns no file in it')
  t.match(await read('docs/operations.md'), /docker run --read-only/)
})
