// What the service writes about requests: JSON lines, one for each at debug level. (That they hold
// no secret: test/security/canary.test.ts.)
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { pathToFileURL } from 'node:url'
import t, { type Test } from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { freePort } from '../services/ports.ts'
import { ask } from './ask.ts'
import { builtCli } from './built.ts'
import { aFolder, externalEnv, serveLatchkey } from './latchkey.ts'
import { noTerminals, onTerminal } from './terminal.ts'
import { until } from './until.ts'

const services = await useServices(t)
const instance = await startInstance(t, services)
const { token } = await makeCaller(instance)

t.test('at debug level the log has a JSON line for each request, with its id and status', async (t) => {
  const service = await serveLatchkey(t, externalEnv(services, { LOG_LEVEL: 'debug' }))
  const startMs = performance.now()
  const answers = [
    await ask(`GET ${service.url}/v1/verify`, { token }),
    await ask(`POST ${service.url}/v1/keys`, { token, json: { name: 'x' } }),
    await ask(`POST ${service.url}/v1/keys`, { token, json: {} }),
    await ask(`GET ${service.url}/v1/keys/apk_absent`, { token }),
    await ask(`GET ${service.url}/v1/verify`),
    await ask(`GET ${service.url}/docs/errors/unauthorized`),
    await ask(`GET ${service.url}/${'long'.repeat(1000)}`, { token }),
  ]
  t.same(
    answers.map(({ status }) => status),
    [200, 201, 400, 404, 401, 200, 404],
  )
  for (const { status, headers } of answers) {
    const requestId = headers.get('x-request-id')
    const line = await until('the request is in the log', () =>
      service.log.find((line) => line.request_id === requestId && line.ms !== undefined),
    )
    t.equal(line.status, status)
    t.ok((line.ms as number) > 0 && (line.ms as number) < performance.now() - startMs, 'in milliseconds')
    t.ok((line.path as string).length <= 200, 'a client cannot fill the disk with one path')
  }
  service.kill('SIGTERM')
  const { stdout, stderr } = await service.ended
  t.equal(stderr, '')
  for (const line of stdout.trimEnd().split('\n')) t.doesNotThrow(() => JSON.parse(line), line)
})

t.test('at the default level an admitted request is not logged', async (t) => {
  const { status, headers } = await instance.ask('GET', '/v1/verify', { token })
  t.equal(status, 200)
  await instance.close()
  t.notMatch(JSON.stringify(instance.log), headers.get('x-request-id')!)
})

t.test(
  'on a terminal, a line break in a name that a client sent begins no new line',
  { skip: noTerminals },
  async (t) => {
    const port = await freePort()
    const terminal = await onTerminal(t, externalEnv(services, { PORT: String(port) }), 'serve')
    await until('it listens', () => terminal.shown.includes('listening'))
    const json = { name: 'x', '\nforged\u001b[2J': 1 }
    const { status } = await ask(`POST http://127.0.0.1:${port}/v1/keys`, { token, json })
    t.equal(status, 400)
    await until('it is in the log', () => terminal.shown.includes('not a parameter'))
    t.match(terminal.shown, '`\\u{a}forged\\u{1b}[2J` is not a parameter of this operation.')
  },
)

t.test('on a terminal, times are in UTC', { skip: noTerminals }, async (t) => {
  const hour = () => new Date().toISOString().slice(11, 13)
  const before = hour()
  const terminal = await onTerminal(t, externalEnv(services, { TZ: 'Asia/Tokyo' }), 'serve')
  await until('it listens', () => terminal.shown.includes('listening'))
  const shown = /\[(\d\d):\d\d:\d\d\.\d{3}Z\] .*listening/.exec(terminal.shown)?.[1]
  t.ok([before, hour()].includes(shown!), terminal.shown)
})

t.test('on a terminal, lines have colours unless NO_COLOR or TERM=dumb', { skip: noTerminals }, async (t) => {
  for (const [more, isColoured] of [
    [{ TERM: 'xterm' }, true],
    [{ TERM: 'xterm', NO_COLOR: '1' }, false],
    [{ TERM: 'dumb' }, false],
  ] as const) {
    const terminal = await onTerminal(t, externalEnv(services, more), 'serve')
    await until('it listens', () => terminal.shown.includes('listening'))
    t.equal(terminal.shown.includes('\x1b['), isColoured, JSON.stringify(more))
  }
})

/** The service at debug level with these as its stdout and stderr, once it answers. */
async function serveInto(t: Test, stdout: 'pipe' | number, stderr: 'pipe' | 'ignore' | number) {
  const port = await freePort()
  const child = spawn(process.execPath, [await builtCli(), 'serve'], {
    cwd: await aFolder(t),
    env: { PATH: process.env.PATH, ...externalEnv(services, { PORT: String(port), LOG_LEVEL: 'debug' }) },
    stdio: ['ignore', stdout, stderr],
  })
  const ended = once(child, 'exit')
  t.teardown(() => {
    child.kill('SIGKILL')
    return ended
  })
  const verify = () => ask(`GET http://127.0.0.1:${port}/v1/verify`, { token })
  await until('it answers', async () => (await verify().catch(() => null))?.status === 200, 300_000)
  return { child, ended, verify }
}

for (const isStderrFull of [false, true])
  t.test(
    `a log that cannot be written costs its lines: the service answers and stops${isStderrFull ? ', also when stderr is as full' : ', and says so once'}`,
    { skip: !existsSync('/dev/full') && 'there is no /dev/full on this machine' },
    async (t) => {
      const full = await open('/dev/full', 'w')
      t.teardown(() => full.close())
      const { child, ended, verify } = await serveInto(t, full.fd, isStderrFull ? full.fd : 'pipe')
      const said = isStderrFull ? null : text(child.stderr!)
      for (let i = 0; i < 10; i++) t.equal((await verify()).status, 200)
      child.kill('SIGTERM')
      t.same(await ended, [0, null])
      if (said) t.match(await said, /^latchkey: the log could not be written \(ENOSPC[^\n]*\n$/)
    },
  )

t.test('a reader of the log that has stopped reading does not keep the service from ending', async (t) => {
  const { child, ended, verify } = await serveInto(t, 'pipe', 'ignore')
  // More than the pipe and the reader's buffer take.
  for (let i = 0; i < 40; i++) await Promise.all(Array.from({ length: 50 }, verify))
  child.kill('SIGTERM')
  t.strictSame(await ended, [0, null])
})

t.test('for a reader of the log that has stopped reading, 8 MB are buffered and not more', async (t) => {
  const writer = `
    const { createLog } = await import(process.argv[1])
    const log = await createLog('info')
    for (let i = 0; i < 32; i++) log.info('x'.repeat(1 << 20))
    process.stderr.write('written')
    process.stdin.resume()`
  const module = pathToFileURL(join(dirname(await builtCli()), 'process', 'log.js')).href
  const child = spawn(process.execPath, ['--input-type=module', '-e', writer, module])
  t.teardown(() => child.kill('SIGKILL'))
  await once(child.stderr, 'data')
  child.stdin.end()
  const { length } = await text(child.stdout)
  t.ok(length > 4 << 20 && length < 12 << 20, `${length} bytes`)
})
