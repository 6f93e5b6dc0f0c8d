// How a process stops: it loses no request that it accepted and nothing that it noted, and ends soon.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { makeCaller, makeKey, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { processTree, send } from '../services/processes.ts'
import { ask } from './ask.ts'
import { builtCli } from './built.ts'
import { heldAtStart, lockWaitOf } from './held-at-start.ts'
import { holdCreation } from './held-request.ts'
import {
  aFolder,
  type Env,
  externalEnv,
  type Latchkey,
  listening,
  serveLatchkey,
  spawnLatchkey,
  spawnWith,
} from './latchkey.ts'
import { until } from './until.ts'

const services = await useServices(t)
const seeding = await startInstance(t, services)
const caller = await makeCaller(seeding)
const other = await makeKey(seeding, { userId: caller.userId })
await seeding.close()
const sql = openDatabase(t, services.databaseUrl, 2)
const serve = (t: Test, env: Env = {}) => serveLatchkey(t, externalEnv(services, env))

const stopping = (service: Latchkey) =>
  until('it says that it stops', () => service.log.some(({ msg }) => msg === 'stopping'))

for (const [signal, DRAIN_SECONDS] of [
  ['SIGTERM', '0'],
  // Ignored: nobody who presses Ctrl-C waits for a load balancer.
  ['SIGINT', '15'],
] as const) {
  t.test(
    `at ${signal} it drains: not ready, takes nothing new, answers what is in flight, exits 0`,
    async (t) => {
      const service = await serve(t, { DRAIN_SECONDS })
      t.equal((await ask(`GET ${service.opsUrl}/readyz`)).status, 200)
      const idle = connect(service.port, '127.0.0.1')
      await once(idle, 'connect')
      idle.write(`GET /v1/verify HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${caller.token}\r\n\r\n`)
      await once(idle, 'data')
      const held = await holdCreation(t, service, caller.token)

      const idleEnds = once(idle.resume(), 'close')
      const startMs = performance.now()
      service.kill(signal)
      await until('it is not ready', async () => (await ask(`GET ${service.opsUrl}/readyz`)).status === 503)
      const { body } = await ask(`GET ${service.opsUrl}/readyz`)
      t.equal(body.status, 'draining')
      t.equal((await ask(`GET ${service.opsUrl}/healthz`)).status, 200, 'it is alive')
      await idleEnds
      t.pass('the idle keep-alive connection is closed')
      await t.rejects(ask(`GET ${service.url}/v1/verify`, { token: caller.token }), 'a new one is refused')
      t.ok(performance.now() - startMs < 15_000, 'before the 15 s of DRAIN_SECONDS are over')

      held.finish()
      const { status, connection, text } = await held.answer
      t.equal(status, 201)
      t.equal(connection, 'close', 'the busy keep-alive connection ends too')
      t.match(JSON.parse(text), { name: 'in flight', plain_key: String })
      const { code, stdout, stderr } = await service.ended
      t.strictSame([code, stderr], [0, ''])
      t.match(stdout, /"stopped"/, 'its last log line is not lost')
    },
  )
}

t.test('a second SIGTERM ends it at once and not with 0', async (t) => {
  const service = await serve(t)
  const held = await holdCreation(t, service, caller.token)
  service.kill('SIGTERM')
  await stopping(service)
  service.kill('SIGTERM')
  const { code, stdout } = await service.ended
  t.not(code, 0)
  t.notMatch(stdout, /"stopped"/, 'it has not waited for the request')
  await t.rejects(held.answer)
  // Without Redis, changes would wait until it can no longer use a cached key.
  await sql`delete from instances`
})

t.test('a crash ends it at once: a handler would return to the fault for ever', async (t) => {
  const service = await serve(t)
  service.kill('SIGSEGV')
  t.equal((await service.ended).signal, 'SIGSEGV')
  // It would hold up the changes of those below.
  await sql`delete from instances`
})

t.test('an unexpected error is logged, and a stop that loses no request but ends with 1', async (t) => {
  const fault = `process.once('SIGWINCH', () => { throw new Error('unforeseen') })`
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(fault)}`
  const service = await serve(t, { NODE_OPTIONS, DRAIN_SECONDS: '15' })
  const held = await holdCreation(t, service, caller.token)
  const startMs = performance.now()
  service.kill('SIGWINCH')
  const line = await until('it says so', () => service.log.find(({ msg }) => /error/.test(String(msg))))
  t.match(line, { level: 60, err: { message: 'unforeseen', stack: /SIGWINCH|process/ } })
  held.finish()
  t.equal((await held.answer).status, 201)
  const { code, stdout } = await service.ended
  t.equal(code, 1)
  t.match(stdout, /"stopped"/)
  t.ok(performance.now() - startMs < 15_000, 'without DRAIN_SECONDS: it may be broken')
})

t.test('during DRAIN_SECONDS it takes requests, and each answer ends its connection', async (t) => {
  const service = await serve(t, { DRAIN_SECONDS: '2' })
  const startMs = performance.now()
  service.kill('SIGTERM')
  await stopping(service)
  const taken = await ask(`GET ${service.url}/v1/verify`, { token: caller.token })
  t.equal(taken.status, 200)
  t.equal(taken.headers.get('connection'), 'close')
  t.equal((await ask(`GET ${service.url}/v1/verify`)).headers.get('connection'), 'close', 'a refusal too')
  t.equal((await service.ended).code, 0)
  t.ok(performance.now() - startMs >= 2000)
})

t.test('during DRAIN_SECONDS an answer waits for the rest of the request', async (t) => {
  const service = await serve(t, { DRAIN_SECONDS: '5' })
  service.kill('SIGTERM')
  await stopping(service)
  for (const [token, status] of [
    [caller.token, 200],
    ['nobody', 401],
  ]) {
    const client = connect(service.port, '127.0.0.1')
    t.teardown(() => client.destroy())
    let received = ''
    client.on('data', (piece) => {
      received += piece
    })
    const closed = once(client, 'close')
    const head = `POST /v1/verify HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n`
    client.write(`${head}Content-Length: 4\r\n\r\nab`)
    // It has had time to be answered.
    for (let others = 0; others < 3; others++) await ask(`GET ${service.url}/v1/verify`)
    t.equal(received, '')
    client.write('cd')
    await closed
    t.match(received, new RegExp(`^HTTP/1.1 ${status} [^]*^connection: close`, 'im'))
  }
  t.equal((await service.ended).code, 0)
})

t.test('a request that never arrives completely does not delay a stop', async (t) => {
  const service = await serve(t)
  const half = await holdCreation(t, service, caller.token)
  service.kill('SIGTERM')
  await t.rejects(half.answer)
  t.equal((await service.ended).code, 0, 'it was not ended for being stuck')
})

t.test(
  'what waits in Postgres at SIGTERM is finished: a request is answered, uses are written',
  async (t) => {
    await sql`update api_keys set last_used_at = null`
    const service = await serve(t)
    const verify = async (token: string) =>
      t.equal((await ask(`GET ${service.url}/v1/verify`, { token })).status, 200)
    let changed: ReturnType<typeof ask> | undefined
    await sql.begin(async (tx) => {
      // The regular writing of uses waits for this one key, so it cannot have written the other's use.
      await tx`select from api_keys where id = ${caller.id} for update`
      await verify(caller.token)
      await lockWaitOf(sql, '%touch_and_confirm_keys%')
      await verify(other.token)
      // Last: it may wait for 5 s only.
      const at = `PATCH ${service.url}/v1/keys/${caller.id}`
      changed = ask(at, { token: caller.token, json: { rate_limit_rpm: 77 } })
      await lockWaitOf(sql, '%change_key%')
      service.kill('SIGTERM')
      await stopping(service)
    })
    const { status, headers, body } = await changed!
    t.strictSame([status, body.rate_limit_rpm, headers.get('connection')], [200, 77, 'close'])
    t.equal((await service.ended).code, 0)
    const rows = await sql<{ age: number | null }[]>`
    select extract(epoch from now() - last_used_at)::float8 as age
    from api_keys where id = any (${[caller.id, other.id]})`
    t.equal(rows.length, 2)
    for (const { age } of rows)
      t.ok(age !== null && age >= 0 && age < 300, `last_used_at is of this use (${age} s ago)`)
  },
)

t.test('an operator gets the answer to a change in flight, and the dashboard its end', async (t) => {
  const service = await serve(t)
  const events = await fetch(`${service.opsUrl}/admin/events`)
  let changed: ReturnType<typeof ask> | undefined
  await sql.begin(async (tx) => {
    await tx`select from api_keys where id = ${other.id} for update`
    const at = `PATCH ${service.opsUrl}/admin/keys/${other.id}`
    changed = ask(at, { json: { rate_limit_rpm: 88 } })
    changed.catch(() => {}) // checked below
    await lockWaitOf(sql, '%change_key%')
    service.kill('SIGTERM')
    await until('the ops listener is closed', () =>
      ask(`GET ${service.opsUrl}/healthz`).then(
        () => false,
        () => true,
      ),
    )
  })
  const { status, headers, body } = await changed!
  t.strictSame([status, body.rate_limit_rpm, headers.get('connection')], [200, 88, 'close'])
  t.match(await events.text(), /^event: hello$/m, 'it is whole')
  t.equal((await service.ended).code, 0)
})

t.test('a request that is cut off does not keep usage and last uses from being written', async (t) => {
  await sql`update api_keys set last_used_at = null`
  const instance = await startInstance(t, services)
  const reported = async () =>
    Number((await sql`select coalesce(sum(reported), 0) as sum from usage_minutes`)[0]!.sum)
  const before = await reported()
  const { id } = instance.service.instance()
  const cutOff = new AbortController()
  let closed: Promise<void> | undefined
  await sql.begin(async (tx) => {
    await tx`select from api_keys where id = ${caller.id} for update`
    const asked = { token: caller.token, json: { rate_limit_rpm: 99 } }
    const isCutOff = t.rejects(instance.ask('PATCH', `/v1/keys/${caller.id}`, asked))
    await lockWaitOf(sql, '%change_key%')
    closed = instance.close({ cutOff: cutOff.signal })
    cutOff.abort()
    await isCutOff
    // Although the use of the locked key cannot be written yet.
    await until(
      'its row is gone',
      async () => (await sql`select from instances where id = ${id}`).length === 0,
    )
    await until('its use is reported', async () => (await reported()) === before + 1)
  })
  await closed
  const [row] = await sql`select last_used_at is not null as is_used from api_keys where id = ${caller.id}`
  t.equal(row!.is_used, true)
})

/** As `npm start` starts it: below a shell, and in a process group of their own. */
async function startBelowShell(t: Test, env: Env) {
  const shell = spawn('/bin/sh', ['-c', '"$0" "$1" serve & wait', process.execPath, await builtCli()], {
    cwd: await aFolder(t),
    env: { PATH: process.env.PATH, npm_lifecycle_event: 'start', ...externalEnv(services, env) },
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  })
  const group = -shell.pid!
  let output = ''
  shell.stdout.setEncoding('utf8').on('data', (text) => {
    output += text
  })
  // Of the service too, which writes to the same pipe.
  const ended = once(shell.stdout, 'close').then(() => output)
  t.teardown(() => send([group], 'SIGKILL'))
  await until('it listens', () => output.includes('"listening"'))
  return { shell, group, ended }
}

t.test('started by npm, it stops when its shell is gone', async (t) => {
  const { shell, ended } = await startBelowShell(t, {})
  shell.kill('SIGKILL')
  t.match(await ended, '"stopped"')
})

t.test('started by npm, a signal to the service and its shell is one signal', async (t) => {
  // It takes longer to stop than it takes to notice that the shell is gone.
  const { group, ended } = await startBelowShell(t, { DRAIN_SECONDS: '1' })
  process.kill(group, 'SIGTERM')
  t.match(await ended, '"stopped"', 'it drained')
})

t.test('SIGTERM while it starts ends it before it listens', async (t) => {
  const { service, letGo } = await heldAtStart(t)
  service.kill('SIGTERM')
  await stopping(service)
  await letGo()
  const { code } = await service.ended
  t.equal(code, 0)
  t.notOk(
    service.log.some(({ msg }) => msg === 'listening'),
    'no client gets in only to be sent off',
  )
})

t.test('SIGTERM once its database is ready, but before it listens, skips DRAIN_SECONDS', async (t) => {
  const { service, startMs } = await sql.begin(async (tx) => {
    await tx`lock table api_keys`
    const service = await spawnLatchkey(t, externalEnv(services, { DRAIN_SECONDS: '15' }), 'serve')
    await lockWaitOf(sql, '%hash_secret_id in%')
    service.kill('SIGTERM')
    await stopping(service)
    return { service, startMs: performance.now() }
  })
  const { code } = await service.ended
  t.equal(code, 0)
  t.ok(performance.now() - startMs < 15_000)
  t.notOk(service.log.some(({ msg }) => msg === 'listening'))
})

t.test('SIGTERM ends it while it waits for a Postgres that is not there', async (t) => {
  const service = await spawnLatchkey(
    t,
    externalEnv({ databaseUrl: 'postgres://127.0.0.1:1/x', redisUrl: null }),
    'serve',
  )
  await until('it waits', () => service.log.length > 0)
  service.kill('SIGTERM')
  const { code } = await service.ended
  t.equal(code, 0)
})

const noNamespaces =
  spawnSync('unshare', ['--pid', '--fork', 'true']).status !== 0 &&
  'this user cannot start a process 1 on this machine'

/** As in a container without an init. */
async function asProcess1(t: Test, env: Env, ...words: string[]) {
  const node = join(await aFolder(t), 'node')
  const lines = `#!/bin/sh\nexec unshare --pid --fork --kill-child '${process.execPath}' "$@"\n`
  await writeFile(node, lines, { mode: 0o755 })
  return spawnWith(t, node, env, words)
}

for (const [signal, code, ...words] of [
  ['SIGTERM', 143, 'serve'],
  ['SIGINT', 130, 'users', 'list'],
] as const)
  t.test(`as process 1, ${words[0]} ends at ${signal} while it loads`, { skip: noNamespaces }, async (t) => {
    const atOnce = `process.on('newListener', (event) => {
      if (event === '${signal}') setImmediate(() => process.kill(1, event))
    })`
    const nowhere = externalEnv({ databaseUrl: 'postgres://127.0.0.1:1/x', redisUrl: null })
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(atOnce)}`
    const latchkey = await asProcess1(t, { ...nowhere, NODE_OPTIONS }, ...words)
    t.match(await latchkey.ended, { code, stdout: '', stderr: '' })
  })

t.test('as process 1, SIGTERM stops it in order once it listens', { skip: noNamespaces }, async (t) => {
  const service = await listening(await asProcess1(t, externalEnv(services), 'serve'))
  send((await processTree(service.pid)).slice(1), 'SIGTERM')
  const { code, stdout } = await service.ended
  t.equal(code, 0)
  t.match(stdout, '"stopped"')
})
