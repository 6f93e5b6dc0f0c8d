// latchkey top and usage: what the counters say, now and over time.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { sparkline } from '../../src/commands/usage.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { openDatabase, startTcpProxy, useServices } from '../services/index.ts'
import { processTree, send as signal } from '../services/processes.ts'
import { builtCli } from './built.ts'
import { type Env, externalEnv, fastClock, openCommandLine, runLatchkey } from './latchkey.ts'
import { noTerminals, onTerminal } from './terminal.ts'
import { until } from './until.ts'

const services = await useServices(t)
const env = externalEnv(services)
const { run, runWith, answerOf } = await openCommandLine(t, env)

const instance = await startInstance(t, services)
const busy = await makeCaller(instance, { rateLimitRpm: 1000 })
const limited = await makeCaller(instance, { rateLimitRpm: 2 })
const send = async (token: string, times: number) => {
  for (let i = 0; i < times; i++) await instance.ask('GET', '/v1/verify', { token })
}

if (services.redisUrl === null) t.pass('counters in Redis', { skip: 'this Redis is inside the test process' })
else {
  t.test('top shows the busiest keys of the minute, by use or by share of the limit', async (t) => {
    const used = async (...words: string[]) =>
      (await answerOf('top', ...words)).keys.map((key: { id: string; used: number }) => [key.id, key.used])
    const minuteNow = () => Math.floor(Date.now() / 60_000)
    const look = async () => {
      await send(busy.token, 9)
      await send(limited.token, 3)
      return {
        byUse: (await used()).map(([id]: [string]) => id),
        byShare: (await used('--sort', 'share'))[0]?.[0],
        one: await used('--limit', '1'),
        printed: (await run('top')).stdout,
        found: (await run('lookup', limited.id)).stdout,
        counters: (await answerOf('lookup', limited.id)).counters,
      }
    }
    let minute: number
    let seen: Awaited<ReturnType<typeof look>>
    do {
      minute = minuteNow()
      seen = await look()
    } while (minute !== minuteNow())
    t.strictSame(seen.byUse, [busy.id, limited.id])
    t.equal(seen.byShare, limited.id)
    t.equal(seen.one.length, 1)
    t.match(seen.printed, /^minute .* 2 keys\n\nused +limit +share.*\n\d+ +1000 +\d+ % +0 +apk_/)
    const [, count, share, over] = /^(\d+) +2 +(\d+) % +(\d+) +apk_/m.exec(seen.printed)!.map(Number)
    t.strictSame([share, over], [count! * 50, count! - 2])
    t.match(seen.found, new RegExp(`^this minute +${count} requests, ${over} over the limit$`, 'm'))
    t.match(seen.found, new RegExp(`^last minute +${seen.counters.last.used} requests`, 'm'))
  })

  t.test('on a terminal it redraws until it is stopped, and leaves the screen as it was', async (t) => {
    const top = `${process.execPath} ${await builtCli()} top`
    const words = ['-qc', `stty -a; ${top}; echo "ended with $?"; stty -a`, '/dev/null']
    const found = await promisify(execFile)('script', ['--version']).catch(() => null)
    if (found === null) return void t.pass('a terminal', { skip: 'there is no script on this machine' })
    for (const key of ['q', '\x03', '\x03\x03', 'SIGTERM']) {
      const child = spawn('script', words, { env: { ...process.env, ...env, TERM: 'xterm' } })
      t.teardown(() => child.kill('SIGKILL'))
      let screen = ''
      child.stdout.on('data', (text) => {
        screen += text
      })
      await until('it has drawn twice', () => screen.split('\x1b[Hminute ').length > 2)
      if (key === 'SIGTERM') signal((await processTree(child.pid!)).slice(-1), key)
      else child.stdin.write(key)
      await once(child, 'close')
      const [settings, drawn = ''] = screen.split('\x1b[?1049h\x1b[?7l')
      t.ok(drawn.endsWith(`\x1b[?25h\x1b[?7h\x1b[?1049lended with 0\r\n${settings}`))
    }
  })

  t.test(
    'while Postgres hangs it goes on without names, and ends at once',
    { skip: noTerminals },
    async (t) => {
      const proxy = await startTcpProxy(t, env.DATABASE_URL!)
      const terminal = await onTerminal(t, { ...env, DATABASE_URL: proxy.url, TERM: 'xterm' }, 'top')
      await until('it has drawn', () => terminal.shown.includes('minute '))
      proxy.blackHole()
      await until('it goes on', () => terminal.shown.includes('no names and limits'), 20_000)
      const startMs = performance.now()
      terminal.type('q')
      t.equal((await terminal.ended).code, 0)
      t.ok(performance.now() - startMs < 5000)
    },
  )

  t.test('with --json it prints one value, on a terminal too', { skip: noTerminals }, async (t) => {
    const terminal = await onTerminal(t, { ...env, TERM: 'xterm' }, 'top', '--json')
    const { code, shown } = await terminal.ended
    t.equal(code, 0)
    t.match(JSON.parse(shown), { source: 'redis' })
  })

  t.test('on a dumb terminal it prints one table', { skip: noTerminals }, async (t) => {
    const terminal = await onTerminal(t, { ...env, TERM: 'dumb' }, 'top')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it begins the sequences.
    t.match(await terminal.ended, { code: 0, shown: /^minute [^\x1b]*\r\n$/ })
  })
}

t.test('top without Redis says what there is instead', async (t) => {
  const { REDIS_URL: _, ...without } = env
  t.match(await runLatchkey(t, without as Env, 'top'), { code: 1, stderr: /REDIS_URL.*\/admin\/counters/ })
})

t.test('top says that Redis is not counting, instead of that nobody uses a key', async (t) => {
  const startMs = performance.now()
  const { code, stdout } = await runWith({ ...env, REDIS_URL: 'redis://127.0.0.1:1' }, 'top')
  t.ok(performance.now() - startMs < 10_000, 'without waiting for counters')
  t.match(
    { code, stdout },
    { code: 0, stdout: /^minute .*\n(.{1,80}\n)?refused: the keys of a Redis server are missing.*\n/ },
  )
})

t.test('usage shows the history of a key with a sparkline', async (t: Test) => {
  const minute = Math.floor(Date.now() / 60_000) - 10
  const { usage } = instance.service.stores
  for (const [at, count] of [
    [minute, 5],
    [minute + 2, 10],
  ] as const) {
    await usage.claim(at)
    await usage.store(at, [{ keyId: limited.id, count }])
    await usage.finish(at, { whole: true, done: true })
  }
  const since = String(minute * 60)
  const answer = await answerOf('usage', limited.id, '--since', since, '--until', String((minute + 4) * 60))
  t.match(answer, { object: 'usage', key_id: limited.id, step: 'minute', incomplete: [] })
  t.strictSame(answer.data, [
    { start: minute * 60, requests: 5, limited: 3 },
    { start: (minute + 2) * 60, requests: 10, limited: 8 },
  ])
  const { stdout } = await run('usage', limited.id, '--since', since, '--until', String((minute + 4) * 60))
  t.match(
    stdout,
    /: 15 requests, at most 10 in one minute\n\|▄ █ \|\n\nminute +requests +limited\n.* +5 +3\n.* +10 +8\n$/,
  )
  if (services.redisUrl !== null) {
    const ages = ['--since', '20m', '--until', '5m']
    const late = await runLatchkey(t, { ...env, ...fastClock }, 'usage', limited.id, ...ages)
    t.match(late.stdout, /: 15 requests/, 'an age is by the clock of the counters')
  }
  t.match(await answerOf('usage', limited.id, '--step', 'day'), { step: 'day' })
  t.match((await run('usage', 'apk_absent')).stderr, /there is no key apk_absent/)
  t.match((await run('usage', limited.id, '--since', '300d')).stderr, /at most 1500.*--since.*--step/)
})

t.test('usage and lookup say that they do not know the current minute', async (t) => {
  const down = { ...env, REDIS_URL: 'redis://127.0.0.1:1' }
  const note = /Redis is not counting: the current minute may be missing\n/
  const usage = await runWith(down, 'usage', busy.id)
  t.match(usage, { code: 0, stdout: note })
  t.notMatch((await runWith(down, 'usage', busy.id, '--since', '20m', '--until', '5m')).stdout, note)
  t.notMatch((await run('usage', busy.id)).stdout, note)
  const { REDIS_URL: _, ...inMemory } = env
  t.match((await runWith(inMemory, 'usage', busy.id)).stdout, /only the service knows the minutes/)
  const known = await runWith(inMemory, 'lookup', busy.id, '--json')
  t.hasStrict(JSON.parse(known.stdout), { type: 'key', counters: undefined })
  const found = await runWith(down, 'lookup', busy.id)
  t.match(found, { code: 0, stdout: /^counters +unknown: Redis is not counting$/m })
  t.notMatch(found.stdout, /this minute/)
})

t.test('a minute that lost requests is a row, and makes the total a minimum', async (t) => {
  const minute = Math.floor(Date.now() / 60_000) - 30
  await openDatabase(t, services.databaseUrl)`
    update api_keys set created_at = created_at - interval '1 hour' where id = ${busy.id}`
  const { usage } = instance.service.stores
  await usage.report(minute, { requests: 4 })
  await usage.store(minute + 1, [{ keyId: busy.id, count: 3 }])
  await usage.report(minute + 1, { requests: 4 })
  const span = ['--since', String(minute * 60), '--until', String((minute + 2) * 60)]
  const { stdout } = await run('usage', busy.id, ...span)
  t.match(
    stdout,
    /: at least 3 requests, at least 3 in one minute\n\| █\|\n\nminute +requests +limited\n\S+ +0 +0 +at least\n\S+ +3 +0 +at least\n$/,
  )
  t.match(await answerOf('usage', busy.id, ...span), {
    data: [{ requests: 3 }],
    incomplete: [minute * 60, (minute + 1) * 60],
  })
})

t.test('a sparkline is at most as wide as asked, and keeps its peaks', async (t) => {
  t.equal(sparkline([0, 1, 4, 8], 60), ' ▁▄█')
  t.equal(sparkline([...Array(100).fill(0), 7, ...Array(19).fill(0)], 60).length, 60)
  t.match(sparkline([...Array(100).fill(0), 7, ...Array(19).fill(0)], 60), /^ {50}█ {9}$/)
  t.equal(sparkline([0, 0], 60), '  ')
})
