// `latchkey serve` on given servers, as a user starts it: what it starts, what it waits for, what it gives up on.
import { readdir } from 'node:fs/promises'
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { startPrivatePostgres, startPrivateRedis, useServices } from '../services/index.ts'
import { processTree } from '../services/processes.ts'
import { ask } from './ask.ts'
import { aFolder, externalEnv, listening, runLatchkey, serveLatchkey, spawnLatchkey } from './latchkey.ts'
import { until } from './until.ts'

t.test('with servers given it starts nothing and keeps nothing', async (t) => {
  const dataDir = await aFolder(t)
  const service = await serveLatchkey(t, externalEnv(await useServices(t), { DATA_DIR: dataDir }))
  t.same(await processTree(service.pid), [service.pid], 'no process beside its own')
  t.same(await readdir(dataDir), [], 'nothing in DATA_DIR')
  t.same(await readdir(service.folder), [], 'nor where it was started')
})

t.test('a port in use ends it with one line that names the variable', async (t) => {
  const env = externalEnv(await useServices(t))
  const service = await serveLatchkey(t, env)
  const taken = { PORT: String(service.port), OPS_PORT: new URL(service.opsUrl).port }
  for (const [name, port] of Object.entries(taken)) {
    const { code, stderr } = await runLatchkey(t, { ...env, [name]: port }, 'serve')
    t.equal(code, 1)
    t.match(stderr, /^[^\n]+\n$/)
    t.match(stderr, new RegExp(`\\b${port}\\b.*\\b${name}\\b`))
  }
  const { code, stderr } = await runLatchkey(t, { ...env, ...taken }, 'serve')
  t.equal(code, 1)
  t.equal(
    stderr,
    `latchkey: port ${taken.OPS_PORT} is in use: choose another with OPS_PORT; port ${taken.PORT} is in use: choose another with PORT\n`,
    'both are named at once',
  )
})

t.test('a Postgres that is not there yet is waited for, and said so', async (t) => {
  const postgres = await startPrivatePostgres(t)
  await postgres.stop()
  const env = externalEnv({ databaseUrl: postgres.url, redisUrl: null })
  const service = await spawnLatchkey(t, env, 'serve')
  const line = await until('it says so', () => service.log.find(({ msg }) => /Postgres/.test(String(msg))))
  t.match(line.msg, /ECONNREFUSED/)
  await postgres.restart()
  const { url } = await listening(service)
  t.equal((await ask(`GET ${url}/v1/verify`)).status, 401)
})

t.test('a Postgres that refuses ends it at once with one line and no password', async (t) => {
  const { databaseUrl, redisUrl } = await useServices(t)
  const absent = Object.assign(new URL(databaseUrl), { pathname: '/latchkey_test_absent' })
  absent.searchParams.set('application_name', 'hunter2')
  const env = externalEnv({ databaseUrl: absent.href, redisUrl })
  const { code, stdout, stderr } = await runLatchkey(t, env, 'serve')
  t.equal(code, 1)
  t.match(stderr, /^[^\n]*Postgres[^\n]*\n$/)
  t.notMatch(stderr, 'hunter2')
  t.notMatch(stdout, /Waiting for Postgres/)
})

t.test(
  'with Redis away it starts, admits and counts by itself, and goes over to Redis when it is there',
  async (t) => {
    const redis = await startPrivateRedis(t)
    if (redis === null) return
    const { databaseUrl, connectRedis } = await useServices(t)
    const instance = await startInstance(t, { databaseUrl, redisUrl: redis.url, connectRedis })
    const { token } = await makeCaller(instance, { rateLimitRpm: 1000 })
    await redis.kill()
    const service = await serveLatchkey(t, externalEnv({ databaseUrl, redisUrl: redis.url }))
    const verify = () => ask(`GET ${service.url}/v1/verify`, { token })
    const counter = async () => (await ask(`GET ${service.opsUrl}/readyz`)).body.redis

    const answers = [await verify(), await verify()]
    for (const { status } of answers) t.equal(status, 200)
    const [one, two] = answers.map(({ headers }) => Number(headers.get('x-ratelimit-remaining')))
    t.ok(two === one! - 1 || two === 999, 'each is counted')
    t.equal(await counter(), 'local')
    t.equal(service.log.filter(({ msg }) => /Redis/.test(String(msg))).length, 1, 'one log line says so')
    await redis.restart()
    await until('it counts in Redis', async () => (await counter()) === 'shared')
    t.equal((await verify()).status, 200)
  },
)

t.test('two instances started at the same moment on an empty database both come up, as one', async (t) => {
  const env = externalEnv(await useServices(t))
  const started = await Promise.all([spawnLatchkey(t, env, 'serve'), spawnLatchkey(t, env, 'serve')])
  const [a, b] = await Promise.all(started.map(listening))
  const { stdout: user } = await runLatchkey(t, env, 'users', 'create', '--name', 'x', '--json')
  const words = ['keys', 'create', '--user', JSON.parse(user).id, '--name', 'x', '--json']
  const { stdout: key } = await runLatchkey(t, env, ...words)
  const token = JSON.parse(key).plain_key
  for (const { url } of [a!, b!]) t.equal((await ask(`GET ${url}/v1/verify`, { token })).status, 200)
})
