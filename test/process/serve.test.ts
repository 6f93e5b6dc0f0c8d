// `latchkey serve` on given servers, as a user starts it: what it starts, what it waits for, what ends it.
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { sendBytes, sendRaw } from '../api/raw-http.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { startPrivatePostgres, startPrivateRedis, useServices } from '../services/index.ts'
import { processTree } from '../services/processes.ts'
import { ask } from './ask.ts'
import {
  aFolder,
  externalEnv,
  listening,
  runLatchkey,
  serveLatchkey,
  spawnLatchkey,
  spawnWith,
} from './latchkey.ts'
import { until } from './until.ts'

t.test('with servers given', async (t) => {
  const dataDir = await aFolder(t)
  const env = externalEnv(await useServices(t), { DATA_DIR: dataDir })
  const service = await serveLatchkey(t, env)
  const { url, opsUrl, port } = service

  await t.test('it starts no process and writes no file', async (t) => {
    t.same(await processTree(service.pid), [service.pid], 'no process beside its own')
    t.same(await readdir(dataDir), [], 'nothing in DATA_DIR')
    t.same(await readdir(service.folder), [], 'nor where it was started')
  })

  await t.test('every docs_url names the port that PORT=0 chose, and opens', async (t) => {
    const errors = {
      unauthorized: (await ask(`GET ${url}/v1/keys`)).body.error,
      bad_request: (await sendBytes(port, 'nonsense\r\n\r\n')).body.error,
      route_not_found: (await ask(`GET ${opsUrl}/nothing`)).body.error,
    }
    for (const [code, { docs_url }] of Object.entries(errors)) {
      t.equal(docs_url, `http://localhost:${port}/docs/errors/${code}`)
      t.equal((await ask(`GET ${docs_url.replace('localhost', '127.0.0.1')}`)).status, 200)
    }
  })

  await t.test('a port in use ends another with one line that names the variable', async (t) => {
    const opsPort = new URL(opsUrl).port
    const fault = (number: string | number, name: string) =>
      `port ${number} is in use: choose another with ${name}`
    const both = `${fault(opsPort, 'OPS_PORT')}; ${fault(port, 'PORT')}`
    for (const [taken, line] of [
      [{ PORT: String(port) }, fault(port, 'PORT')],
      [{ PORT: String(port), OPS_PORT: opsPort }, both],
    ] as const) {
      const { code, stderr } = await runLatchkey(t, { ...env, ...taken }, 'serve')
      t.strictSame([code, stderr], [1, `latchkey: ${line}\n`])
    }
    const { instances } = (await ask(`GET ${opsUrl}/admin/instances`)).body
    t.equal(instances.length, 1, 'and no change waits for it')
  })
})

t.test('a port that only root may use ends it with one line that names the variable', async (t) => {
  const firstFree = await readFile('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'utf8').catch(() => '0')
  if (Number(firstFree) <= 81) return t.pass('any user may listen on any port')
  let node = process.execPath
  if (process.getuid?.() === 0) {
    node = join(await aFolder(t), 'node')
    const script = `#!/bin/sh\nexec setpriv --bounding-set -net_bind_service '${process.execPath}' "$@"\n`
    await writeFile(node, script, { mode: 0o755 })
  }
  const env = externalEnv(await useServices(t), { PORT: '80', OPS_PORT: '81' })
  const { code, stderr } = await (await spawnWith(t, node, env, ['serve'])).ended
  const fault = (port: number, name: string) =>
    `this user may not listen on port ${port}: choose another with ${name}`
  t.strictSame([code, stderr], [1, `latchkey: ${fault(81, 'OPS_PORT')}; ${fault(80, 'PORT')}\n`])
})

t.test('a host that cannot be listened on ends it with one line that names the variable', async (t) => {
  const env = externalEnv(await useServices(t), { OPS_TOKEN: 'ada:a-token-of-adas-own' })
  const absent = 'hunter2.invalid'
  const foreign = '203.0.113.9'
  const unresolved = (name: string) => `${name} does not resolve`
  const notOurs = (name: string) => `${name} is not an address of this machine`
  for (const [hosts, line] of [
    [{ HOST: absent }, unresolved('HOST')],
    [{ HOST: absent, OPS_HOST: absent }, `${unresolved('OPS_HOST')}; ${unresolved('HOST')}`],
    [{ HOST: absent, WORKERS: '2', REDIS_URL: 'redis://127.0.0.1:1' }, unresolved('HOST')],
    [{ HOST: foreign }, notOurs('HOST')],
    [{ HOST: foreign, OPS_HOST: 'localhost', OPS_TOKEN: '' }, notOurs('HOST')],
    [{ OPS_HOST: foreign }, notOurs('OPS_HOST')],
  ] as const) {
    const { code, stderr } = await runLatchkey(t, { ...env, ...hosts }, 'serve')
    t.strictSame([code, stderr], [1, `latchkey: ${line}\n`])
  }
})

t.test('operators have the tokens and the limits of the environment', async (t) => {
  const [ada, prometheus] = ['a-token-of-adas-own', 'a-token-of-prometheus']
  const { opsUrl } = await serveLatchkey(
    t,
    externalEnv(await useServices(t), {
      ...{ OPS_TOKEN: `ada:${ada}`, METRICS_TOKEN: prometheus },
      ...{ DEFAULT_RATE_LIMIT_RPM: '77', MAX_RATE_LIMIT_RPM: '5000' },
    }),
  )
  const admin = (target: string, json: object) => {
    const [method, path] = target.split(' ')
    return ask(`${method} ${opsUrl}/admin/${path}`, { token: ada, json })
  }
  const { body: user } = await admin('POST users', { name: 'x' })
  const wanted = { user_id: user.id, name: 'x' }
  const { status, body: key } = await admin('POST keys', wanted)
  t.strictSame([status, key.rate_limit_rpm], [201, 77])
  const above = { rate_limit_rpm: 5001 }
  t.equal((await admin('POST keys', { ...wanted, ...above })).status, 400)
  t.equal((await admin(`PATCH keys/${key.id}`, above)).status, 400)
  t.equal((await ask(`GET ${opsUrl}/admin/instances`)).status, 401)
  t.equal((await ask(`GET ${opsUrl}/metrics`)).status, 401)
  t.equal((await ask(`GET ${opsUrl}/metrics`, { token: prometheus })).status, 200)
})

t.test('NODE_OPTIONS loosens neither the parser nor the bound of headers', async (t) => {
  const NODE_OPTIONS = '--insecure-http-parser --max-http-header-size=1000000'
  const { port, opsUrl } = await serveLatchkey(t, externalEnv(await useServices(t), { NODE_OPTIONS }))
  for (const listener of [port, Number(new URL(opsUrl).port)]) {
    const statusWith = async (header: string) => (await sendRaw(listener, 'GET', '/healthz', [header])).status
    t.equal(await statusWith(`X-Large: ${'a'.repeat(20_000)}`), 431)
    t.equal(await statusWith('X-Control: \x01'), 400)
  }
})

t.test('serve waits for a Postgres that is not there yet, and says so', async (t) => {
  const postgres = await startPrivatePostgres(t)
  await postgres.stop()
  const env = externalEnv({ databaseUrl: postgres.url, redisUrl: null })
  const service = await spawnLatchkey(t, env, 'serve')
  const waits = () => service.log.filter(({ msg }) => /Postgres/.test(String(msg)))
  const line = await until('it says so', () => waits()[0])
  t.equal(line.msg, 'Waiting for Postgres: cannot be reached (ECONNREFUSED)', 'without the address')
  await postgres.restart()
  const { url } = await listening(service)
  t.equal(waits().length, 1, 'once, not for each try')
  t.equal((await ask(`GET ${url}/v1/verify`)).status, 401)
})

t.test('a Postgres that refuses ends it at once with one line and no password', async (t) => {
  const { databaseUrl, redisUrl } = await useServices(t)
  for (const part of ['pathname', 'username'] as const) {
    const url = new URL(databaseUrl)
    url[part] = 'latchkey_test_absent'
    url.searchParams.set('application_name', 'hunter2')
    const env = externalEnv({ databaseUrl: url.href, redisUrl })
    const { code, stdout, stderr } = await runLatchkey(t, env, 'serve')
    t.equal(code, 1)
    t.match(stderr, /^[^\n]*Postgres[^\n]*\n$/)
    t.notMatch(stderr, 'hunter2')
    t.notMatch(stdout, /Waiting for Postgres/)
  }
})

t.test(
  'with Redis down it starts, admits and counts by itself, and uses Redis once it is back',
  async (t) => {
    const redis = await startPrivateRedis(t)
    if (redis === null) return
    const { databaseUrl, connectRedis } = await useServices(t)
    const instance = await startInstance(t, { databaseUrl, redisUrl: redis.url, connectRedis })
    const { token } = await makeCaller(instance, { rateLimitRpm: 1000 })
    await redis.kill()
    const service = await serveLatchkey(t, externalEnv({ databaseUrl, redisUrl: redis.url }))
    const verify = () => ask(`GET ${service.url}/v1/verify`, { token })
    const ready = () => ask(`GET ${service.opsUrl}/readyz`)

    const answers = [await verify(), await verify()]
    for (const { status } of answers) t.equal(status, 200)
    const [one, two] = answers.map(({ headers }) => Number(headers.get('x-ratelimit-remaining')))
    t.ok(two === one! - 1 || two === 999, 'each is counted')
    t.match(
      await ready(),
      { status: 200, body: { redis: 'local' } },
      'a shared server that is down does not fail it',
    )
    t.equal(service.log.filter(({ msg }) => /Redis/.test(String(msg))).length, 1, 'one log line says so')
    const { body } = await ask(`GET ${service.opsUrl}/admin/instances`)
    t.match(body.instances.at(-1), { redis: 'local' }, 'and operators see it')
    await redis.restart()
    await until('it counts in Redis', async () => (await ready()).body.redis === 'shared')
    t.equal((await verify()).status, 200)
  },
)

t.test(
  'two instances that start at once on an empty database both come up, and use the given BASE_URL',
  async (t) => {
    const services = await useServices(t)
    const env = externalEnv(services, { BASE_URL: 'https://keys.example/base' })
    const started = await Promise.all([spawnLatchkey(t, env, 'serve'), spawnLatchkey(t, env, 'serve')])
    const [a, b] = await Promise.all(started.map(listening))
    const { token } = await makeCaller(await startInstance(t, services))
    const docs = 'https://keys.example/base/docs/errors'
    for (const { url, opsUrl } of [a!, b!]) {
      t.equal((await ask(`GET ${url}/v1/verify`, { token })).status, 200)
      t.equal((await ask(`GET ${url}/v1/keys`)).body.error.docs_url, `${docs}/unauthorized`)
      t.equal((await ask(`GET ${opsUrl}/nothing`)).body.error.docs_url, `${docs}/route_not_found`)
    }
  },
)
