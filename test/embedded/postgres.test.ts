// The Postgres that Latchkey starts by itself: who owns DATA_DIR, what survives a kill, and as
// which user it runs.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs, {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { hostname, tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import threads from 'node:worker_threads'
import t from 'tap'
import { chooseLaunch } from '../../src/embedded/as-unprivileged.ts'
import { findBinaries } from '../../src/embedded/binaries.ts'
import { openDataDir } from '../../src/embedded/data-dir.ts'
import { fileFault, lastRelevantLine } from '../../src/embedded/faults.ts'
import { makeCluster } from '../../src/embedded/initdb.ts'
import { takeLock, watchLock } from '../../src/embedded/lock.ts'
import { openEmbeddedPostgres } from '../../src/embedded/postgres.ts'
import { isAlive } from '../../src/embedded/processes.ts'
import { until } from '../process/until.ts'
import {
  backendOf,
  canBlockNamespaces,
  canStartContainer,
  failure,
  modeOf,
  open,
  openElsewhere,
  parentDir,
  postmasterOf,
  query,
  startLatchkey,
  store,
  stored,
  usedDir,
} from './fixtures/harness.ts'

// An embedded Postgres does not keep its process running, and some tests wait for nothing else.
const running = setInterval(() => {}, 60_000)
t.teardown(() => clearInterval(running))

const lockOf = (dataDir: string) => join(dataDir, 'postgres.lock')

t.test('the first start sets up a Postgres of its own', async (t) => {
  process.env.HASH_SECRET = 'it may run as another user'
  t.teardown(() => delete process.env.HASH_SECRET)
  const dataDir = join(parentDir(t), 'data')
  const { url, progress } = await open(t, dataDir)

  t.match(url, /^postgres:\/\/latchkey:[0-9a-f]+@127\.0\.0\.1:\d+\/latchkey$/)
  t.match(progress, [/^Setting up a Postgres in .*data\/postgres$/, /ready in \d+\.\d s$/])
  t.equal(modeOf(dataDir), 0o700)
  for (const file of ['postgres-password', 'postgres.log']) t.equal(modeOf(join(dataDir, file)), 0o600, file)
  if (process.platform === 'linux')
    t.notMatch(readFileSync(`/proc/${postmasterOf(dataDir)}/environ`, 'utf8'), 'HASH_SECRET')
  const files = ['postgres', 'postgres-password', 'postgres.lock', 'postgres.log']
  t.strictSame(readdirSync(dataDir).sort(), files)

  const [row] = await query(
    url,
    `select current_setting('listen_addresses') as listens,
       current_setting('fsync') as fsync, current_setting('server_encoding') as encoding, current_user as "user"`,
  )
  t.strictSame({ ...row }, { listens: '127.0.0.1', fsync: 'on', encoding: 'UTF8', user: 'latchkey' })
  for (const setting of ['synchronous_commit', 'full_page_writes'])
    t.match(await query(url, `select current_setting('${setting}') as value`), [{ value: 'on' }], setting)
  const [, , , , sockets] = readFileSync(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8').split('\n')
  t.equal(sockets, '', 'there is no socket beside the port')
  await t.rejects(query(url.replace(/:[0-9a-f]+@/, ':wrong@'), 'select 1'), { code: '28P01' })

  await t.rejects(query(url, "select 'in no log'::int"), { code: '22P02' })
  t.notMatch(readFileSync(join(dataDir, 'postgres.log'), 'utf8'), 'in no log')
})

t.test("the service's role owns its database and is no superuser, and nobody else can log in", async (t) => {
  const { url } = await open(t, await usedDir(t))
  const [role] = await query(
    url,
    `select rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls,
       (select datdba::regrole::text from pg_database where datname = current_database()) as owner,
       pg_has_role('pg_execute_server_program', 'member') or pg_has_role('pg_read_server_files', 'member') as reaches_out
     from pg_roles where rolname = current_user`,
  )
  t.strictSame(
    { ...role },
    {
      rolsuper: false,
      rolcreaterole: false,
      rolcreatedb: true,
      rolreplication: false,
      rolbypassrls: false,
      owner: 'latchkey',
      reaches_out: false,
    },
  )
  for (const statement of [
    `copy (select 1) to program 'cat /etc/shadow'`,
    `copy (select 1) to '${join(tmpdir(), 'from-postgres')}'`,
    `select pg_read_file('/etc/shadow')`,
    `select lo_import('/etc/shadow')`,
    'alter system set log_connections = on',
  ])
    await t.rejects(query(url, statement), { code: '42501' }, statement)
  const superuser = url.replace('//latchkey:', '//postgres:')
  await t.rejects(query(superuser, 'select 1'), { code: '28000' })
})

t.test('stop is no crash, however often it is called, and the next start finds the data', async (t) => {
  const dataDir = await usedDir(t)
  const first = await open(t, dataDir)
  await store(first.url, 'before the stop')
  const pid = postmasterOf(dataDir)
  await Promise.all([first.stop(), first.stop()])
  await first.stop()
  t.equal(isAlive(pid), false)
  t.equal(existsSync(join(dataDir, 'postgres', 'postmaster.pid')), false, 'it was shut down in order')
  t.equal(await Promise.race([first.exited, 'nothing']), 'nothing')
  t.equal(existsSync(lockOf(dataDir)), false)

  const second = await open(t, dataDir)
  t.equal(await stored(second.url), 'before the stop')
  t.strictSame(second.progress, [])
})

t.test(
  'after kill -9 of the service its stdout ends, and the next start takes over its Postgres',
  async (t) => {
    const dataDir = await usedDir(t)
    const service = await openElsewhere(t, dataDir, 'serve')
    await store(service.url, 'before the kill')
    const pid = postmasterOf(dataDir)
    service.child.kill('SIGKILL')
    await service.ended
    t.equal(isAlive(pid), true, 'Postgres goes on')

    const next = await open(t, dataDir)
    t.equal(next.url, service.url)
    t.equal(await stored(next.url), 'before the kill')
    await next.stop()
    t.equal(isAlive(pid), false, 'and is stopped by the next owner')
  },
)

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const)
  t.test(`a command that ${signal} ends leaves no Postgres behind`, async (t) => {
    const dataDir = await usedDir(t)
    const command = await openElsewhere(t, dataDir, 'command')
    const pid = postmasterOf(dataDir)
    command.child.kill(signal)
    await command.ended
    t.equal(command.child.signalCode, signal)
    await until('its Postgres has ended', () => !isAlive(pid))
  })

t.test('after kill -9 of the service and of Postgres the next start finds the data', async (t) => {
  const dataDir = await usedDir(t)
  const service = await openElsewhere(t, dataDir, 'serve')
  await store(service.url, 'before the kills')
  service.child.kill('SIGKILL')
  process.kill(postmasterOf(dataDir), 'SIGKILL')

  const next = await open(t, dataDir)
  t.equal(await stored(next.url), 'before the kills')
})

t.test('`exited` says when Postgres is gone, to its owner and to a command beside it', async (t) => {
  const dataDir = await usedDir(t)
  const service = await open(t, dataDir)
  const command = await open(t, dataDir, 'command')
  await store(service.url, 'before the kill')
  const pid = postmasterOf(dataDir)
  process.kill(pid, 'SIGKILL')
  for (const { exited } of [service, command]) t.match(await exited, `Postgres (process ${pid}) is gone`)

  const next = await open(t, dataDir)
  t.equal(await stored(next.url), 'before the kill', 'another start need not wait for the service to end')
  await service.stop()
  t.equal(await stored(next.url), 'before the kill', 'whose stop leaves the new server alone')
})

t.test('a set-up that was killed halfway leaves nothing half-made', async (t) => {
  const dataDir = parentDir(t)
  const { child } = startLatchkey(t, dataDir, 'serve')
  const halfMade = () => readdirSync(dataDir).filter((name) => name.startsWith('postgres.new-'))
  await until('initdb has begun', () =>
    halfMade().some((name) => existsSync(join(dataDir, name, 'cluster', 'PG_VERSION'))),
  )
  child.kill('SIGKILL')

  const next = await open(t, dataDir)
  t.match(next.progress, [/^Setting up/, /ready/])
  await store(next.url, 'new')
  t.equal(await stored(next.url), 'new')
  await next.stop()
  // The killed process's initdb may have written for a moment longer; a later start removes what it
  // left.
  await until('nothing is left', async () => {
    await (await open(t, dataDir)).stop()
    return halfMade().length === 0
  })
})

t.test("a command uses the service's Postgres and leaves it running", async (t) => {
  const dataDir = await usedDir(t)
  const service = await open(t, dataDir)
  const pid = postmasterOf(dataDir)
  const link = join(parentDir(t), 'link')
  symlinkSync(dataDir, link)
  const commands = await Promise.all([dataDir, link].map((path) => open(t, path, 'command')))
  for (const command of commands) t.equal(command.url, service.url)
  await Promise.all(commands.map((command) => command.stop()))
  t.equal(isAlive(pid), true)
  await store(service.url, 'still there')
})

t.test('a command that comes while the service stops gets a Postgres that goes on', async (t) => {
  const dataDir = await usedDir(t)
  const service = await open(t, dataDir)
  await store(service.url, 'before the stop')
  const stopping = service.stop()
  t.match(readFileSync(lockOf(dataDir), 'utf8'), /^command /, 'others wait from now on')
  const command = await open(t, dataDir, 'command')
  await stopping
  t.equal(await stored(command.url), 'before the stop')
})

// Not both at once: a command beside the service uses its Postgres, and loses it when the service
// stops.
for (const [who, roles] of [
  ['other commands', ['command', 'command']],
  ['a service', ['serve']],
] as const) {
  t.test(`a command alone starts Postgres and stops it, while ${who} wait for it to end`, async (t) => {
    const dataDir = await usedDir(t)
    const first = await open(t, dataDir, 'command')
    const pid = postmasterOf(dataDir)
    await store(first.url, 'by a command')
    const order: string[] = []
    const others = roles.map(async (role) => {
      const other = await open(t, dataDir, role)
      order.push('opened')
      t.equal(await stored(other.url), 'by a command')
      await other.stop()
    })
    order.push('stopping')
    await first.stop()
    t.equal(isAlive(pid), false)
    await Promise.all(others)
    t.strictSame(order, ['stopping', ...roles.map(() => 'opened')])
  })
}

t.test('a service says that it waits for a command to end, and a signal ends the wait', async (t) => {
  const dataDir = await usedDir(t)
  // One of this very process.
  t.ok(takeLock(lockOf(dataDir), 'command'))
  t.teardown(() => rmSync(lockOf(dataDir), { force: true }))
  const stopping = new AbortController()
  let say = (_: string) => {}
  const said = new Promise<string>((resolve) => (say = resolve))
  const opening = openEmbeddedPostgres({
    ...{ dataDir, role: 'serve', signal: stopping.signal, onProgress: say },
  })
  opening.catch(() => {})
  t.match(await said, `Waiting for another Latchkey (process ${process.pid}) to end, which uses DATA_DIR`)
  stopping.abort()
  await t.rejects(opening, { name: 'AbortError' })
})

t.test('a wrong clock that is set right ends no wait for another command', async (t) => {
  const dataDir = await usedDir(t)
  const first = await open(t, dataDir, 'command')
  const now = Date.now
  let hours = 0
  t.intercept(Date, 'now', { value: () => now() + hours++ * 3_600_000 })
  const waiting = open(t, dataDir, 'command')
  await first.stop()
  const second = await waiting
  t.ok(isAlive(postmasterOf(dataDir)))
  await second.stop()
})

t.test('a second service is refused with one line that names the first', async (t) => {
  const dataDir = await usedDir(t)
  const service = await openElsewhere(t, dataDir, 'serve')
  t.equal(
    await failure(t, dataDir),
    `DATA_DIR ${dataDir} is already served by another Latchkey (process ${service.child.pid}): stop that one first, or give this one a DATA_DIR of its own`,
  )
  await store(service.url, 'undisturbed')
})

t.test('two commands at once in a new directory: one sets it up, both use it', async (t) => {
  const dataDir = join(parentDir(t), 'data')
  const both = [1, 2].map(async () => {
    const { progress, stop } = await openElsewhere(t, dataDir, 'command')
    await stop()
    return progress.some((line) => line.startsWith('Setting up')) ? 'set up' : 'used'
  })
  t.strictSame((await Promise.all(both)).sort(), ['set up', 'used'])
})

t.test('two services at once in a new directory: one serves, the other is refused', async (t) => {
  const dataDir = join(parentDir(t), 'data')
  const outcomes = await Promise.all([failure(t, dataDir), failure(t, dataDir)])
  t.match(outcomes.sort(), [/already served by another Latchkey/, 'it opened'])
})

t.test('a pid file that names an unrelated process or a zombie, or is empty, is no obstacle', async (t) => {
  const dataDir = await usedDir(t)
  const pg = await open(t, dataDir)
  await store(pg.url, 'before the kill')
  const pidFile = join(dataDir, 'postgres', 'postmaster.pid')
  const left = readFileSync(pidFile, 'utf8')
  process.kill(postmasterOf(dataDir), 'SIGKILL')
  await pg.exited
  // It never waits for the child that the shell leaves to it.
  const unrelated = spawn('sh', ['-c', 'sleep 0 & echo $!; exec sleep 60'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  t.teardown(() => unrelated.kill())
  const [zombie] = await once(unrelated.stdout, 'data')
  // A power cut may leave it empty.
  for (const text of [
    ...[unrelated.pid, Number(zombie)].map((pid) => left.replace(/^\d+/, String(pid))),
    '',
  ]) {
    writeFileSync(pidFile, text)
    const next = await open(t, dataDir)
    t.equal(await stored(next.url), 'before the kill')
    await next.stop()
  }
  t.equal(isAlive(unrelated.pid!), true)
})

t.test(
  'the lock of a dead process is no obstacle, even if its id belongs to another process now',
  async (t) => {
    const dataDir = await usedDir(t)
    for (const role of ['serve', 'command'] as const) {
      for (const left of [`serve ${process.pid}-an-earlier-one`, '']) {
        writeFileSync(lockOf(dataDir), left)
        writeFileSync(`${lockOf(dataDir)}.breaking`, left)
        const pg = await open(t, dataDir, role)
        t.match(readFileSync(lockOf(dataDir), 'utf8'), new RegExp(`^${role} ${process.pid}-`))
        await pg.stop()
      }
    }
  },
)

t.test(
  'of two who find a dead lock at once, the slower one leaves the new lock of the faster one',
  async (t) => {
    const lock = lockOf(parentDir(t))
    writeFileSync(lock, `serve ${process.pid}-an-earlier-one`)
    const { linkSync } = fs
    const value = (from: string, to: string) => {
      // Once the slower one has looked, the faster one has removed the dead lock and taken its own.
      writeFileSync(lock, 'serve of-the-faster-one')
      linkSync(from, to)
    }
    const { restore } = t.intercept(fs, 'linkSync', { value, configurable: true })
    syncBuiltinESMExports()
    const found = watchLock(lock)()
    restore()
    syncBuiltinESMExports()
    t.equal(found, null)
    t.equal(readFileSync(lock, 'utf8'), 'serve of-the-faster-one')
  },
)

// The process id is that of a living process, whose birth is another.
const lockFromElsewhere = `serve ${process.pid}-another another-place pod-1`
const elsewhere = `process ${process.pid} on pod-1, in another container or on another machine`

t.test('the owner touches its lock, even while its main thread is busy', async (t) => {
  const dataDir = await usedDir(t)
  await open(t, dataDir)
  const touchedMs = () => statSync(lockOf(dataDir)).mtimeMs
  const beforeMs = touchedMs()
  const giveUpAtMs = performance.now() + 60_000
  while (touchedMs() === beforeMs && performance.now() < giveUpAtMs);
  t.not(touchedMs(), beforeMs)
})

t.test('a preload of NODE_OPTIONS that fails in threads does not keep the owner from it', async (t) => {
  const dataDir = await usedDir(t)
  const preload = join(parentDir(t), 'preload.cjs')
  writeFileSync(preload, `if (require('worker_threads').workerData?.everyMs) process.chdir('/')`)
  await openElsewhere(t, dataDir, 'serve', { nodeOptions: `--require=${preload}` })
  const touchedMs = () => statSync(lockOf(dataDir)).mtimeMs
  const beforeMs = touchedMs()
  await until('it is touched', () => touchedMs() !== beforeMs)
})

t.test('an owner that cannot start a thread leaves no lock behind', async (t) => {
  const dataDir = await usedDir(t)
  const value = class {
    constructor() {
      throw new Error('no thread')
    }
  }
  const { restore } = t.intercept(threads, 'Worker', { value, configurable: true })
  syncBuiltinESMExports()
  const why = await failure(t, dataDir)
  restore()
  syncBuiltinESMExports()
  t.equal(why, 'no thread')
  t.equal(existsSync(lockOf(dataDir)), false)
})

t.test('beside a service in another container, nothing starts and the message says where', async (t) => {
  const dataDir = await usedDir(t)
  const lock = lockOf(dataDir)
  const pidFile = join(dataDir, 'postgres', 'postmaster.pid')
  writeFileSync(lock, lockFromElsewhere)
  writeFileSync(pidFile, 'guard of the other Postgres')
  const touching = setInterval(() => utimesSync(lock, new Date(), new Date()), 100)
  t.teardown(() => clearInterval(touching))
  const served = `DATA_DIR ${dataDir} is already served by another Latchkey (${elsewhere})`
  t.equal(
    await failure(t, dataDir, 'serve'),
    `${served}: stop that one first, or give this one a DATA_DIR of its own`,
  )
  t.equal(await failure(t, dataDir, 'command'), `${served}: run the command there, or stop that one first`)
  t.equal(readFileSync(lock, 'utf8'), lockFromElsewhere)
  t.equal(readFileSync(pidFile, 'utf8'), 'guard of the other Postgres')
  clearInterval(touching)
  await open(t, dataDir)
})

t.test('a lock from elsewhere is removed after 5 s without a touch', async (t) => {
  const dataDir = await usedDir(t)
  writeFileSync(lockOf(dataDir), lockFromElsewhere)
  writeFileSync(`${lockOf(dataDir)}.breaking`, lockFromElsewhere)
  const startMs = performance.now()
  await open(t, dataDir)
  t.ok(performance.now() - startMs > 5_000)
})

for (const [what, lock] of [
  ['', lockFromElsewhere],
  [' by one that has ended already', null],
] as const) {
  t.test(
    `a service that was suspended and replaced${what} gives up, and leaves the files alone`,
    async (t) => {
      const dataDir = await usedDir(t)
      const service = await open(t, dataDir)
      const pid = postmasterOf(dataDir)
      t.teardown(() => rmSync(lockOf(dataDir), { force: true }))
      if (lock === null) rmSync(lockOf(dataDir))
      else writeFileSync(lockOf(dataDir), lock)
      t.match(await service.exited, /^Another Latchkey has taken over DATA_DIR .* no sign of life/)
      await service.stop()
      await until('its Postgres is gone', () => !isAlive(pid))
      t.equal(existsSync(lockOf(dataDir)) ? readFileSync(lockOf(dataDir), 'utf8') : null, lock)
      t.ok(existsSync(join(dataDir, 'postgres', 'postmaster.pid')), 'it may be that of the new owner')
    },
  )
}

t.test('a service that was suspended in its set-up and replaced starts no Postgres', async (t) => {
  const dataDir = join(parentDir(t), 'data')
  const replace = () => writeFileSync(lockOf(dataDir), lockFromElsewhere)
  const opening = openEmbeddedPostgres({ dataDir, role: 'serve', onProgress: replace })
  await t.rejects(opening, { message: /^Another Latchkey has taken over DATA_DIR / })
  t.equal(existsSync(join(dataDir, 'postgres', 'postmaster.pid')), false)
  t.equal(readFileSync(lockOf(dataDir), 'utf8'), lockFromElsewhere)
})

t.test('a service that was replaced and ends at once kills its Postgres', async (t) => {
  const dataDir = await usedDir(t)
  const others = process.listeners('exit')
  await open(t, dataDir)
  const atExit = process.listeners('exit').find((one) => !others.includes(one))!
  const pid = postmasterOf(dataDir)
  writeFileSync(lockOf(dataDir), lockFromElsewhere)
  t.teardown(() => rmSync(lockOf(dataDir)))
  // Without a pause, in which it would notice.
  atExit(0)
  const giveUpAtMs = performance.now() + 20_000
  while (isAlive(pid) && performance.now() < giveUpAtMs);
  t.equal(isAlive(pid), false)
  t.ok(existsSync(join(dataDir, 'postgres', 'postmaster.pid')), 'an orderly stop would remove it')
})

const noContainer = !canStartContainer() && 'this user cannot make a namespace for process ids'

t.test(
  'a service in another container holds its DATA_DIR until it is killed',
  { skip: noContainer },
  async (t) => {
    const dataDir = await usedDir(t)
    const service = await openElsewhere(t, dataDir, 'serve', { inContainer: true })
    await store(service.url, 'in the container')
    const where = `process 1 on ${hostname()}, in another container or on another machine`
    t.match(await failure(t, dataDir), `already served by another Latchkey (${where})`)
    t.equal(await stored(service.url), 'in the container', 'it is undisturbed')

    service.child.kill('SIGKILL')
    await service.ended
    const next = await open(t, dataDir)
    t.equal(await stored(next.url), 'in the container', 'after it was killed, the next start finds the data')
  },
)

t.test('after the crash of one backend the service still holds its DATA_DIR', async (t) => {
  const dataDir = await usedDir(t)
  const service = await open(t, dataDir)
  const busy = query(service.url, 'select pg_sleep(60)').catch(() => 'crashed')
  process.kill(await backendOf(service.url, 'select pg_sleep(60)'), 'SIGKILL')
  t.equal(await busy, 'crashed')
  await until('Postgres recovers', async () => {
    return (await query(service.url, 'select 1').catch(() => [])).length === 1
  })
  t.match(await failure(t, dataDir), /already served/)
  await service.stop()
  t.equal(await Promise.race([service.exited, 'nothing']), 'nothing')
})

t.test('the next start waits for a backend that outlives its killed Postgres', async (t) => {
  const dataDir = await usedDir(t)
  const pg = await open(t, dataDir)
  const statement = 'select count(*) from generate_series(1, 100000000000)'
  const busy = query(`${pg.url}?statement_timeout=60000`, statement).catch(() => {})
  const backend = await backendOf(pg.url, statement)
  process.kill(postmasterOf(dataDir), 'SIGKILL')
  await pg.exited
  const next = await open(t, dataDir, 'serve', () => process.kill(backend, 'SIGTERM'))
  t.equal(isAlive(backend), false)
  t.strictSame(next.progress, ['Waiting for an earlier Postgres of this DATA_DIR to end'])
  await busy
})

t.test('a start that cannot work fails with one plain line', async (t) => {
  const parent = parentDir(t)
  writeFileSync(join(parent, 'file'), '')
  t.equal(await failure(t, join(parent, 'file')), `DATA_DIR ${join(parent, 'file')} is not a directory`)

  const other = join(parent, 'other')
  mkdirSync(join(other, 'postgres'), { recursive: true })
  writeFileSync(join(other, 'postgres', 'notes.txt'), '')
  t.match(await failure(t, other), /holds something that is not a Postgres/)

  writeFileSync(join(other, 'postgres-password'), 'x')
  writeFileSync(join(other, 'postgres', 'PG_VERSION'), '12\n')
  t.match(await failure(t, other), /was made by Postgres 12 and this Latchkey brings Postgres \d+/)
  t.equal(existsSync(lockOf(other)), false)

  const dataDir = await usedDir(t)
  const control = join(dataDir, 'postgres', 'global', 'pg_control')
  const password = join(dataDir, 'postgres-password')
  for (const [file, why] of [
    [control, /^Postgres did not start: [^\n]*could not find the database system[^\n]*\(its log is .*\)$/],
    [password, /postgres-password is missing, and without it the data in .* cannot be opened/],
  ] as const) {
    renameSync(file, `${file}.moved`)
    t.match(await failure(t, dataDir), why)
    renameSync(`${file}.moved`, file)
    t.equal(existsSync(join(dataDir, 'postgres', 'postmaster.pid')), false, 'no Postgres is left running')
  }
})

t.test('a path of its own that initdb cannot use is named', async (t) => {
  const parent = parentDir(t)
  const dir = openDataDir(join(parent, 'data'))
  const shipped = findBinaries(dir.libraries)
  const bin = join(parent, 'a$b', 'bin')
  mkdirSync(bin, { recursive: true })
  symlinkSync(join(dirname(shipped.initdb), '../lib'), join(bin, '../lib'))
  const copy = (program: string) => {
    copyFileSync(program, join(bin, basename(program)))
    return join(bin, basename(program))
  }
  const binaries = { ...shipped, initdb: copy(shipped.initdb), postgres: copy(shipped.postgres) }
  const message = `: initdb fails if its path has one of " $ \` or \\\\, and it is in ${bin}: install Latchkey elsewhere`
  t.throws(() => makeCluster(dir, binaries, chooseLaunch(binaries, dir).launch), { message })
})

t.test('a full disk is named, not what follows from it', async (t) => {
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
  t.equal(fileFault(full, '/data').message, `the disk of DATA_DIR /data is full (${full.message})`)
  for (const fault of [
    'could not extend file "base/1/2691": No space left on device',
    // What Postgres says if there was still room for a part of the block.
    'could not extend file "base/1/2606_fsm": wrote only 4096 of 8192 bytes at block 2',
  ]) {
    const output = [
      `running bootstrap script ... 2026-11-27 FATAL:  ${fault}`,
      '2026-11-27 HINT:  Check free disk space.',
      '2026-11-27 PANIC:  cannot abort transaction 1, it was already committed',
    ].join('\n')
    t.equal(lastRelevantLine(output), fault)
  }
})

t.test('a full disk does not keep the owner from its stop', async (t) => {
  const dataDir = await usedDir(t)
  const service = await open(t, dataDir)
  const pid = postmasterOf(dataDir)
  const value = () => {
    throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
  }
  const { restore } = t.intercept(fs, 'writeFileSync', { value, configurable: true })
  syncBuiltinESMExports()
  await t.resolves(service.stop()).finally(() => {
    restore()
    syncBuiltinESMExports()
  })
  t.equal(isAlive(pid), false)
  t.equal(existsSync(lockOf(dataDir)), false)
})

t.test('the log is cut at a start when it has grown beyond 1 MB', async (t) => {
  const dataDir = await usedDir(t)
  writeFileSync(join(dataDir, 'postgres.log'), 'x'.repeat(1024 * 1024 + 1))
  await open(t, dataDir)
  t.ok(statSync(join(dataDir, 'postgres.log')).size < 10_000)
})

t.test('it starts with a long path of quotes and spaces, from a directory that cannot be read', async (t) => {
  const parent = parentDir(t)
  const dataDir = join(parent, 'with spaces', 'long'.repeat(40), `it's "here" $HOME \`id\``)
  t.ok(dataDir.length > 120)
  const closed = join(parent, 'closed')
  mkdirSync(closed)
  const home = process.cwd()
  process.chdir(closed)
  chmodSync(closed, 0o000)
  t.teardown(() => {
    process.chdir(home)
    chmodSync(closed, 0o700)
  })
  const pg = await open(t, dataDir)
  await store(pg.url, 'there')
  t.equal(await stored(pg.url), 'there')
})

t.test('a relative DATA_DIR starts from the current directory', async (t) => {
  const dataDir = await usedDir(t)
  const home = process.cwd()
  process.chdir(dirname(dataDir))
  t.teardown(() => process.chdir(home))
  t.strictSame((await open(t, basename(dataDir), 'command')).progress, [])
})

const isRoot = process.platform === 'linux' && process.geteuid?.() === 0

t.test('as root', { skip: !isRoot && 'only root on Linux has to give up root' }, async (t) => {
  t.test('where another user can reach everything, Postgres runs as that user', async (t) => {
    const parent = parentDir(t)
    chmodSync(parent, 0o755)
    const dataDir = join(parent, 'data')
    const { url, progress } = await open(t, dataDir)
    await store(url, 'there')

    const status = readFileSync(`/proc/${postmasterOf(dataDir)}/status`, 'utf8')
    t.match(status, /^Uid:\t65534\t65534\t65534\t65534$/m)
    t.match(status, /^Gid:\t65534\t65534\t65534\t65534$/m)
    t.match(status, /^Groups:\s*$/m)
    t.match(status, /^CapEff:\t0+$/m)
    const cluster = join(dataDir, 'postgres')
    // A temporary file may be gone by now.
    const ownerOf = (file: string) => statSync(join(cluster, file), { throwIfNoEntry: false })?.uid ?? 65534
    const files = readdirSync(cluster, { recursive: true, encoding: 'utf8' })
    t.strictSame(
      files.filter((file) => ownerOf(file) !== 65534),
      [],
      'each file is its own',
    )
    t.equal(progress.length, 2, 'there is nothing to warn of')
    t.equal(modeOf(join(dataDir, 'postgres-password')), 0o600)
  })

  t.test('where it cannot, Postgres runs in a user namespace, and the first start says so', async (t) => {
    const parent = parentDir(t)
    const { progress } = await open(t, join(parent, 'data'))
    t.equal(
      progress.at(-1),
      `User 65534 cannot reach ${parent}: Postgres runs in a user namespace, with access to root's files`,
    )
  })

  const skip = !(await canBlockNamespaces()) && 'no namespace can be made to block them in'

  t.test(
    'without namespaces, files under a 0700 parent change owner and keep their content',
    { skip },
    async (t) => {
      const parent = join(parentDir(t), 'private')
      const dataDir = join(parent, 'data')
      mkdirSync(parent, { mode: 0o700 })
      const cluster = join(dataDir, 'postgres')

      const without = await openElsewhere(t, dataDir, 'serve', { namespaces: false })
      t.match(without.progress.at(-1), 'Postgres runs as user 65534 with access to every file')
      await store(without.url, 'there')
      t.equal(statSync(cluster).uid, 65534)
      await without.stop()

      const withThem = await open(t, dataDir)
      t.equal(await stored(withThem.url), 'there')
      t.equal(statSync(cluster).uid, 0)
      t.equal(statSync(join(cluster, 'base', '1', 'PG_VERSION')).uid, 0)
      await withThem.stop()

      const again = await openElsewhere(t, dataDir, 'serve', { namespaces: false })
      t.equal(await stored(again.url), 'there')
      t.equal(statSync(cluster).uid, 65534)
      t.equal(statSync(join(dataDir, 'postgres-password')).uid, 0)
      t.equal(modeOf(dataDir), 0o700)
    },
  )

  t.test('with neither namespaces nor setpriv, another user must reach the directory', async (t) => {
    const parent = parentDir(t)
    const dataDir = join(parent, 'data')
    const path = process.env.PATH
    t.teardown(() => {
      process.env.PATH = path
    })
    process.env.PATH = '/nowhere'
    t.match(
      await failure(t, dataDir),
      `Postgres refuses to run as root, and user 65534 cannot reach ${parent}: run Latchkey as another user`,
    )

    chmodSync(parent, 0o755)
    await open(t, dataDir)
    t.equal(statSync(join(dataDir, 'postgres')).uid, 65534)
    t.equal(modeOf(dataDir), 0o701)
  })

  t.test("another user's data stays that user's", async (t) => {
    const dataDir = await usedDir(t)
    const uid = statSync(join(dataDir, 'postgres')).uid
    execFileSync('chown', ['-R', '1000:1000', dataDir])
    t.teardown(() => execFileSync('chown', ['-R', `${uid}:${uid}`, dataDir]))
    await open(t, dataDir, 'command')
    t.equal(statSync(join(dataDir, 'postgres')).uid, 1000)
    t.equal(statSync(join(dataDir, 'postgres', 'postmaster.pid')).uid, 1000)
  })
})
