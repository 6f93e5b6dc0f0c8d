// `serve --workers`: several instances behind one port, started, replaced and stopped as one.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFile, mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Server } from 'node:net'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { workerCount } from '../../src/commands/workers.ts'
import { type Config, workersMax } from '../../src/config.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { freePort } from '../services/ports.ts'
import { commandLine, processTree, send, waitUntilGone } from '../services/processes.ts'
import { ask } from './ask.ts'
import { builtCli } from './built.ts'
import { heldAtStart } from './held-at-start.ts'
import { holdCreation } from './held-request.ts'
import {
  aFolder,
  type Env,
  externalEnv,
  type Latchkey,
  listening,
  runLatchkey,
  spawnWith,
} from './latchkey.ts'
import { until } from './until.ts'

const services = await useServices(t)
const office = await startInstance(t, services)
const caller = await makeCaller(office)
const limited = await Promise.all([1, 2, 3].map(() => makeCaller(office, { rateLimitRpm: 20 })))
await office.close()
const isShared = services.redisUrl !== null

const linesOf = ({ log }: Latchkey, message: string) => log.filter(({ msg }) => msg === message)

async function serve(t: Test, env: Env = {}, node = process.execPath) {
  const service = await spawnWith(t, node, externalEnv(services, env), ['serve', '--workers', '2'])
  const serving = await listening(service)
  await until('both listen', () => linesOf(service, 'listening').length === 2)
  const opsUrls = linesOf(service, 'listening').map((line) => `http://127.0.0.1:${line.ops_port}`)
  return Object.assign(serving, { opsUrls })
}

/** Two workers whose log goes into a shell's pipe: Node's own is a socket. */
async function serveIntoPipe(t: Test, reader: string[]) {
  const [port, opsPort] = [await freePort(), await freePort()]
  const service = [process.execPath, await builtCli()]
  const shell = spawn(
    'sh',
    ['-c', '"$0" "$1" serve --workers 2 | { shift; exec "$@"; }', ...service, ...reader],
    {
      cwd: await aFolder(t),
      env: {
        PATH: process.env.PATH,
        ...externalEnv(services, { PORT: String(port), OPS_PORT: String(opsPort), LOG_LEVEL: 'debug' }),
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  )
  t.teardown(async () => send(await processTree(shell.pid!), 'SIGKILL'))
  const isReady = () => ask(`GET http://127.0.0.1:${opsPort + 1}/readyz`).catch(() => null)
  await until('both listen', async () => (await isReady())?.status === 200, 300_000)
  // A pipe holds 64 KiB.
  const count = 1500
  const verify = () => ask(`GET http://127.0.0.1:${port}/v1/verify`, { token: caller.token })
  return {
    shell,
    count,
    async fillPipe() {
      for (let sent = 0; sent < count; sent += 50) await Promise.all(Array.from({ length: 50 }, verify))
    },
  }
}

/** A free port, before one that is taken until the end of the test. */
async function freePortBeforeTaken(t: Test): Promise<number> {
  const [first, second] = [createServer(), createServer()]
  t.teardown(() => second.close())
  let free: number
  do {
    await listens(first, 0)
    free = (first.address() as AddressInfo).port
    await new Promise((resolve) => first.close(resolve))
  } while (!(await listens(second, free + 1)))
  return free
}

const listens = (server: Server, port: number): Promise<boolean> => {
  server.listen(port, '127.0.0.1')
  return once(server, 'listening').then(
    () => true,
    () => false,
  )
}

if (isShared) {
  t.test('two workers share a port and the counts, and each is an instance of its own', async (t) => {
    const { url, opsUrls } = await serve(t)
    let statuses: number[] = []
    let resets = new Set()
    // Not across the turn of a minute: again with another key.
    do {
      const { token } = limited.pop()!
      const verify = () => ask(`GET ${url}/v1/verify`, { token })
      const answers = await Promise.all(Array.from({ length: 30 }, verify))
      statuses = answers.map(({ status }) => status)
      resets = new Set(answers.map(({ headers }) => headers.get('x-ratelimit-reset')))
    } while (resets.size > 1)
    t.equal(statuses.filter((status) => status === 200).length, 20)
    t.equal(statuses.filter((status) => status === 429).length, 10)
    for (const opsUrl of opsUrls) {
      const { text } = await ask(`GET ${opsUrl}/metrics`)
      t.match(text, /^latchkey_requests_total\{.*\} [1-9]/m, 'it has answered some of them')
    }
    const { body } = await ask(`GET ${opsUrls[0]}/admin/instances`)
    t.equal(body.instances.length, 2)
  })

  t.test('a worker that is killed is replaced, and the other one answers meanwhile', async (t) => {
    const service = await serve(t)
    const [, ...workers] = await processTree(service.pid)
    send([workers[0]!], 'SIGKILL')
    const line = await until('it says so', () => linesOf(service, 'a worker has ended; starting another')[0])
    t.equal((await ask(`GET ${service.url}/v1/verify`, { token: caller.token })).status, 200)
    await until('another is started', async () => (await processTree(service.pid)).length === 3)
    t.ok(Date.now() - Date.parse(String(line.time)) >= 1000, 'after a pause: it might die at its start')
    await until('another listens', () => linesOf(service, 'listening').length === 3)
    t.equal((await processTree(service.pid)).length, 3)
    service.kill('SIGTERM')
    t.match(await service.ended, { code: 0 }, 'a stop waits for those that run')
  })

  t.test('a stop soon after a worker was killed is no fault', async (t) => {
    const service = await serve(t)
    const [, first] = await processTree(service.pid)
    send([first!], 'SIGKILL')
    await until('it says so', () => linesOf(service, 'a worker has ended; starting another').length > 0)
    service.kill('SIGTERM')
    t.match(await service.ended, { code: 0, stderr: '' })
    t.equal(linesOf(service, 'stopped').length, 2)
  })

  t.test('a connection that a worker has not taken when it is killed is closed', async (t) => {
    const service = await serve(t)
    const [, frozen] = await processTree(service.pid)
    send([frozen!], 'SIGSTOP')
    const { hostname, port } = new URL(service.url)
    const sockets = Array.from({ length: 20 }, () => connect(Number(port), hostname))
    t.teardown(() => sockets.map((socket) => socket.destroy()))
    let answered = 0
    let closed = 0
    for (const socket of sockets) {
      socket.once('data', () => answered++)
      socket.on('error', () => {}).once('close', () => closed++)
      socket.write('GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n')
    }
    await until('the other worker has answered all but one', () => answered === 19)
    send([frozen!], 'SIGKILL')
    await until('that one is closed', () => closed === 1)
    t.equal(answered, 19)
  })

  t.test('a worker that cannot be replaced at once is tried again, on its own ops port', async (t) => {
    const service = await serve(t, { OPS_PORT: String(await freePort()) })
    const port = Math.max(...service.opsUrls.map((url) => Number(new URL(url).port)))
    const second = linesOf(service, 'listening').find((line) => line.ops_port === port)!
    // Listens before the replacement does: connections of the killed one do not keep the port.
    const inTheWay = createServer()
    send([second.pid as number], 'SIGKILL')
    await until('its port is free', () => listens(inTheWay, port))
    const ended = () => linesOf(service, 'a worker has ended; starting another')
    await until('its replacement has ended', () => ended().length === 2)
    t.equal((await ask(`GET ${service.url}/v1/verify`, { token: caller.token })).status, 200)
    inTheWay.close()
    await until('another listens', () => linesOf(service, 'listening').length === 3)
    t.equal(linesOf(service, 'listening')[2]!.ops_port, port)
  })

  t.test('a worker that no process starts for is tried again, and the other one answers', async (t) => {
    const folder = await aFolder(t)
    const [bin, away] = [join(folder, 'bin'), join(folder, 'away')]
    await mkdir(bin)
    await copyFile(process.execPath, join(bin, 'node'))
    const service = await serve(t, {}, join(bin, 'node'))
    const [, first] = await processTree(service.pid)
    const failed = (code: string) =>
      linesOf(service, 'a worker has ended; starting another').some(
        ({ err }) => (err as NodeJS.ErrnoException | undefined)?.code === code,
      )
    await rename(bin, away)
    send([first!], 'SIGKILL')
    await until('Node reports a failure', () => failed('ENOENT'))
    await writeFile(bin, '')
    await until('Node throws one', () => failed('ENOTDIR'))
    t.equal((await ask(`GET ${service.url}/v1/verify`, { token: caller.token })).status, 200)
    await rm(bin)
    await rename(away, bin)
    await until('another listens', () => linesOf(service, 'listening').length === 3)
    service.kill('SIGTERM')
    t.match(await service.ended, { code: 0 }, 'a stop waits for none that never ran')
  })

  t.test('a second signal also ends a worker that hangs', async (t) => {
    const service = await serve(t)
    const all = await processTree(service.pid)
    send([all[1]!], 'SIGSTOP')
    service.kill('SIGTERM')
    await until('it stops', () => linesOf(service, 'stopping').length > 0)
    service.kill('SIGTERM')
    t.equal((await service.ended).code, 1)
    t.ok(await waitUntilGone(all, 30_000))
  })

  for (const [signal, who, DRAIN_SECONDS] of [
    ['SIGTERM', 'the first process', '0'],
    // They take longer to stop than the first process waits for the signal to arrive.
    ['SIGTERM', 'all of them', '1'],
    // Ignored: nobody who presses Ctrl-C waits for a load balancer.
    ['SIGINT', 'the first process', '15'],
  ] as const)
    t.test(`${signal} to ${who} is one stop, which loses no request`, async (t) => {
      const service = await serve(t, { DRAIN_SECONDS })
      const all = await processTree(service.pid)
      const held = await holdCreation(t, service, caller.token)
      const startMs = performance.now()
      send(who === 'all of them' ? all : [service.pid], signal)
      await until('all stop', () => linesOf(service, 'stopping').length === 3)
      held.finish()
      t.equal((await held.answer).status, 201)
      const { code, stderr } = await service.ended
      t.strictSame([code, stderr], [0, ''])
      t.ok(performance.now() - startMs < 15_000)
      t.equal(linesOf(service, 'stopped').length, 3)
      t.equal(linesOf(service, 'a worker has ended; starting another').length, 0)
      t.ok(await waitUntilGone(all, 0))
    })

  t.test('log lines of workers are whole, also if the reader of the log is slow', async (t) => {
    const readNow = join(await aFolder(t), 'read-now')
    const reader = `
      const { existsSync, readSync } = require('node:fs')
      const waiting = setInterval(() => {
        if (!existsSync(process.argv[1])) return
        clearInterval(waiting)
        const page = Buffer.alloc(4096)
        const never = new Int32Array(new SharedArrayBuffer(4))
        for (let read; (read = readSync(0, page)) > 0; Atomics.wait(never, 0, 0, 10))
          process.stdout.write(page.subarray(0, read))
      }, 50)`
    const { shell, fillPipe, count } = await serveIntoPipe(t, [process.execPath, '-e', reader, readNow])
    let log = ''
    shell.stdout.setEncoding('utf8').on('data', (text) => {
      log += text
    })
    await fillPipe()
    await writeFile(readNow, '')
    await until('all lines are read', () => log.split('\n').length > count)
    const lines = log.split('\n').slice(0, -1)
    t.strictSame(
      lines.filter((line) => !/^\{[^{}]*\}$/.test(line)),
      [],
    )
  })

  t.test('a reader of the log that has stopped reading does not keep them from ending', async (t) => {
    const { shell, fillPipe } = await serveIntoPipe(t, ['sleep', '600'])
    await fillPipe()
    const [, ...below] = await processTree(shell.pid!)
    const lines = await Promise.all(below.map(commandLine))
    const all = below.filter((_, i) => !lines[i]!.startsWith('sleep'))
    t.equal(all.length, 3)
    process.kill(all[0]!, 'SIGTERM')
    t.ok(await waitUntilGone(all, 20_000), 'before the stop would be cut short')
  })

  t.test('SIGTERM while the first worker starts is a stop and no fault', async (t) => {
    const { service, letGo } = await heldAtStart(t, { WORKERS: '2' })
    service.kill('SIGTERM')
    await until('it stops', () => linesOf(service, 'stopping').length > 0)
    await letGo()
    t.match(await service.ended, { code: 0, stderr: '' })
    t.equal(linesOf(service, 'a worker could not start').length, 0)
  })

  t.test('what keeps a worker from starting ends all, with its one line', async (t) => {
    const { port } = await serve(t)
    const env = externalEnv(services, { PORT: String(port), WORKERS: '2' })
    const { code, stderr } = await runLatchkey(t, env, 'serve')
    t.strictSame([code, stderr], [1, `latchkey: port ${port} is in use: choose another with PORT\n`])
  })

  t.test('a port of the ops listeners that is in use ends all, whichever worker needs it', async (t) => {
    const { opsUrls } = await serve(t)
    const free = await freePortBeforeTaken(t)
    const instances = async () => (await ask(`GET ${opsUrls[0]}/admin/instances`)).body.instances
    const before = await instances()
    const env = externalEnv(services, { OPS_PORT: String(free), WORKERS: '2' })
    const { code, stderr } = await runLatchkey(t, env, 'serve')
    t.strictSame([code, stderr], [1, `latchkey: port ${free + 1} is in use: choose another with OPS_PORT\n`])
    t.equal((await instances()).length, before.length, 'those that ran have stopped as usual')
  })
}

t.test('auto is a worker for each core, if there are ports for all', async (t) => {
  const config = { workers: 'auto', databaseUrl: 'x', redis: {}, opsPort: 0 } as unknown as Config
  const cores = availableParallelism()
  t.equal(workerCount(config), Math.min(cores, workersMax))
  t.equal(workerCount({ ...config, redis: null }), 1)
  t.equal(workerCount({ ...config, opsPort: 65_536 - cores }), cores)
  t.throws(() => workerCount({ ...config, opsPort: 65_537 - cores }), { message: /OPS_PORT must be at most/ })
})

t.test('the port of the service is not one of the ops listeners', async (t) => {
  const same = { workers: 2, databaseUrl: 'x', redis: {}, host: 'a', opsHost: 'a', opsPort: 4000 }
  const count = (more: object) => workerCount({ ...same, ...more } as unknown as Config)
  for (const port of [0, 3999, 4002]) t.equal(count({ port }), 2)
  t.equal(count({ port: 0, opsPort: 0 }), 2, 'any free ports')
  for (const port of [4000, 4001])
    t.throws(() => count({ port }), { message: /^PORT must not be one of the 2 ports from OPS_PORT on/ })
  t.equal(count({ port: 4001, opsHost: 'b' }), 2, 'at another address it may have the same number')
  t.throws(() => count({ port: 4000, workers: 1 }), { message: 'PORT and OPS_PORT must differ' })
})

t.test('workers need servers to share, and a port each', async (t) => {
  const { DATABASE_URL, REDIS_URL, ...rest } = externalEnv({ ...services, redisUrl: 'redis://127.0.0.1:1' })
  const line = 'WORKERS above 1 needs DATABASE_URL and REDIS_URL: without them each worker would have its own'
  for (const one of [{ DATABASE_URL }, { REDIS_URL }] as Env[]) {
    const { code, stderr } = await runLatchkey(t, { ...rest, ...one, WORKERS: '2' }, 'serve')
    t.strictSame([code, stderr], [1, `latchkey: ${line}\n`])
  }
  const last = { ...rest, DATABASE_URL, REDIS_URL, OPS_PORT: '65535' } as Env
  t.match(
    (await runLatchkey(t, last, 'serve', '--workers', '2')).stderr,
    /^latchkey: OPS_PORT must be at most 65534 with 2 workers/,
  )
  const { code, stderr } = await runLatchkey(t, rest, 'serve', '--workers', 'many')
  t.strictSame([code, stderr], [1, 'latchkey: --workers must be auto, or a whole number from 1 to 128\n'])
})
