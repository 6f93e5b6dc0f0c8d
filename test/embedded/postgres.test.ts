import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import t from 'tap'
import {
  canBlockNamespaces,
  isRunning,
  makeOlder,
  modeOf,
  open,
  parentDir,
  postmasterOf,
  query,
  recall,
  remember,
  runLatchkey,
  spawnLatchkey,
  until,
  usedDir,
} from './fixtures/harness.ts'

const asRoot = process.geteuid?.() === 0
const onLinux = process.platform === 'linux'

// An embedded Postgres does not keep its process running, and some tests wait for nothing else.
const running = setInterval(() => {}, 60_000)
t.teardown(() => clearInterval(running))

t.test('the first start sets up a Postgres of its own', async (t) => {
  const dataDir = join(parentDir(t), 'data')
  const progress: string[] = []
  const pg = await open(t, { dataDir, role: 'serve', onProgress: (line) => progress.push(line) })

  t.equal(pg.created, true)
  t.match(pg.url, /^postgres:\/\/latchkey:[0-9a-f]+@127\.0\.0\.1:\d+\/latchkey$/)
  t.match(progress, [/^Setting up a Postgres in .*data\/postgres$/, /ready in \d+\.\d s$/])
  t.equal(modeOf(dataDir), 0o700)
  t.equal(modeOf(join(dataDir, 'postgres-password')), 0o600)
  const files = readdirSync(dataDir).sort()
  t.match(files.pop(), new RegExp(`^postgres\\.used-by\\.serve\\.${process.pid}-`))
  t.strictSame(files, ['postgres', 'postgres-password', 'postgres.log'])

  const [row] = await query(
    pg.url,
    `select current_setting('listen_addresses') as listens,
       current_setting('fsync') as fsync, current_setting('server_encoding') as encoding, current_user as "user"`,
  )
  t.strictSame({ ...row }, { listens: '127.0.0.1', fsync: 'on', encoding: 'UTF8', user: 'latchkey' })
  const [, , , , sockets] = readFileSync(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8').split('\n')
  t.equal(sockets, '', 'no socket beside the port')
  await t.rejects(query(pg.url.replace(/:[0-9a-f]+@/, ':wrong@'), 'select 1'), { code: '28P01' })
})

t.test("the service's role owns its database and is no superuser, and nobody else can log in", async (t) => {
  const { url } = await open(t, { dataDir: await usedDir(t), role: 'serve' })
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

t.test('a cluster whose superuser is latchkey, as they were made before, still starts', async (t) => {
  const dataDir = join(parentDir(t), 'data')
  makeOlder(dataDir)
  const pg = await open(t, { dataDir, role: 'serve' })
  t.equal(pg.created, false)
  await remember(pg.url, 'kept')
  t.equal(await recall(pg.url), 'kept')
})

t.test('the second start finds the data of the first', async (t) => {
  const dataDir = await usedDir(t)
  const first = await open(t, { dataDir, role: 'serve' })
  await remember(first.url, 'kept')
  await first.stop()

  const progress: string[] = []
  const second = await open(t, { dataDir, role: 'serve', onProgress: (line) => progress.push(line) })
  t.equal(second.created, false)
  t.equal(await recall(second.url), 'kept')
  t.strictSame(progress, [])
})

t.test('stop ends the server once, however often it is called, and is no crash', async (t) => {
  const dataDir = await usedDir(t)
  const pg = await open(t, { dataDir, role: 'serve' })
  const pid = postmasterOf(dataDir)
  await Promise.all([pg.stop(), pg.stop()])
  await pg.stop()
  t.equal(isRunning(pid), false)
  t.equal(existsSync(join(dataDir, 'postgres', 'postmaster.pid')), false, 'it was shut down in order')
  t.equal(await Promise.race([pg.exited, 'nothing']), 'nothing')
})

t.test('after kill -9 of the service its stdout ends, and the next start finds the data', async (t) => {
  const dataDir = await usedDir(t)
  const service = await spawnLatchkey(t, dataDir, 'serve')
  await remember(service.url, 'before the kill')
  const pid = postmasterOf(dataDir)
  service.child.kill('SIGKILL')
  await service.ended
  t.equal(isRunning(pid), true, 'postgres is left behind')

  const next = await open(t, { dataDir, role: 'serve' })
  t.equal(await recall(next.url), 'before the kill')
  await next.stop()
  t.equal(isRunning(pid), false, 'and goes with the next one')
})

t.test('kill -9 of postgres is told by `exited`, and the next start finds the data', async (t) => {
  const dataDir = await usedDir(t)
  const pg = await open(t, { dataDir, role: 'serve' })
  await remember(pg.url, 'before the kill')
  const pid = postmasterOf(dataDir)
  process.kill(pid, 'SIGKILL')
  t.match(await pg.exited, new RegExp(`^Postgres \\(process ${pid}\\) was ended by SIGKILL`))
  await pg.stop()

  const next = await open(t, { dataDir, role: 'serve' })
  t.equal(await recall(next.url), 'before the kill')
})

t.test('a command hears of the death of a postgres that is not its child', async (t) => {
  const dataDir = await usedDir(t)
  await spawnLatchkey(t, dataDir, 'serve')
  const command = await open(t, { dataDir, role: 'command' })
  const pid = postmasterOf(dataDir)
  process.kill(pid, 'SIGKILL')
  t.match(await command.exited, `Postgres (process ${pid}) is gone`)
})

t.test('after kill -9 of the service and of postgres the next start finds the data', async (t) => {
  const dataDir = await usedDir(t)
  const service = await spawnLatchkey(t, dataDir, 'serve')
  await remember(service.url, 'before the kills')
  service.child.kill('SIGKILL')
  process.kill(postmasterOf(dataDir), 'SIGKILL')

  const next = await open(t, { dataDir, role: 'serve' })
  t.equal(await recall(next.url), 'before the kills')
})

t.test('a set-up that was killed halfway leaves nothing half-made', async (t) => {
  const dataDir = parentDir(t)
  const { child } = runLatchkey(t, dataDir, 'serve')
  const halfMade = () => readdirSync(dataDir).filter((name) => name.startsWith('postgres.new-'))
  await until(() => halfMade().some((name) => existsSync(join(dataDir, name, 'cluster', 'PG_VERSION'))))
  child.kill('SIGKILL')

  const next = await open(t, { dataDir, role: 'serve' })
  t.equal(next.created, true)
  await remember(next.url, 'kept')
  t.equal(await recall(next.url), 'kept')
  await next.stop()
  // The killed one's initdb may have gone on writing for a moment; the start after that removes what it left.
  await until(async () => {
    const later = await open(t, { dataDir, role: 'serve' })
    await later.stop()
    return halfMade().length === 0
  })
  t.equal(existsSync(join(dataDir, 'postgres.lock')), false)
})

t.test('a command uses the server of the service and leaves it running', async (t) => {
  const dataDir = await usedDir(t)
  const service = await open(t, { dataDir, role: 'serve' })
  const pid = postmasterOf(dataDir)
  const commands = await Promise.all([1, 2].map(() => open(t, { dataDir, role: 'command' })))
  t.strictSame(
    commands.map(({ url, created }) => ({ url, created })),
    Array(2).fill({ url: service.url, created: false }),
  )
  await Promise.all(commands.map((command) => command.stop()))
  t.equal(isRunning(pid), true)
  await remember(service.url, 'still there')
})

t.test('a command alone starts the server and stops it', async (t) => {
  const dataDir = await usedDir(t)
  const command = await open(t, { dataDir, role: 'command' })
  const pid = postmasterOf(dataDir)
  await remember(command.url, 'by a command')
  await command.stop()
  t.equal(isRunning(pid), false)
})

t.test('a server that a command started stays for the service, and goes with it', async (t) => {
  const dataDir = await usedDir(t)
  const command = await spawnLatchkey(t, dataDir, 'command')
  const pid = postmasterOf(dataDir)
  const service = await open(t, { dataDir, role: 'serve' })
  t.equal(service.url, command.url)
  await command.stop()
  t.equal(isRunning(pid), true, 'though the process that started it has ended')
  await service.stop()
  t.equal(isRunning(pid), false)
})

t.test('of commands that leave together the last one stops the server', async (t) => {
  const dataDir = await usedDir(t)
  const commands = []
  for (let i = 0; i < 4; i++) commands.push(await open(t, { dataDir, role: 'command' }))
  const pid = postmasterOf(dataDir)
  await Promise.all(commands.map((command) => command.stop()))
  t.equal(isRunning(pid), false)
})

t.test('commands that come while the last one leaves get a server all the same', async (t) => {
  const dataDir = await usedDir(t)
  let leaving = await open(t, { dataDir, role: 'command' })
  for (let i = 0; i < 6; i++) {
    const [next] = await Promise.all([open(t, { dataDir, role: 'command' }), leaving.stop()])
    await remember(next.url, `round ${i}`)
    leaving = next
  }
  t.equal(await recall(leaving.url), 'round 5')
})

t.test('a second service is refused with one line that names the first', async (t) => {
  const dataDir = await usedDir(t)
  const service = await spawnLatchkey(t, dataDir, 'serve')
  const refused = await open(t, { dataDir, role: 'serve' }).catch((error) => error.message)
  t.equal(
    refused,
    `DATA_DIR ${dataDir} is already served by another Latchkey (process ${service.child.pid}): stop that one first, or give this one a DATA_DIR of its own`,
  )
  await remember(service.url, 'undisturbed')
})

t.test('two commands at once on a fresh directory: one sets up, both use it', async (t) => {
  const dataDir = parentDir(t)
  const both = await Promise.all([spawnLatchkey(t, dataDir, 'command'), spawnLatchkey(t, dataDir, 'command')])
  t.strictSame(both.map(({ created }) => created).sort(), [false, true])
  t.equal(both[0].url, both[1].url)
})

t.test('two services at once on a fresh directory: one serves, the other is told so', async (t) => {
  const dataDir = parentDir(t)
  const told = await Promise.all(
    [1, 2].map(() =>
      open(t, { dataDir, role: 'serve' }).then(
        () => 'serves',
        (error) => error.message,
      ),
    ),
  )
  t.match(told.sort(), [/already served by another Latchkey/, 'serves'])
})

t.test('a stale pid file whose id is now an unrelated process, or a zombie, is no obstacle', async (t) => {
  const dataDir = await usedDir(t)
  const pg = await open(t, { dataDir, role: 'serve' })
  await remember(pg.url, 'kept')
  process.kill(postmasterOf(dataDir), 'SIGKILL')
  await pg.exited
  // It never looks after the child that it has got from the shell.
  const unrelated = spawn('sh', ['-c', 'sleep 0 & echo $!; exec sleep 60'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  t.teardown(() => unrelated.kill())
  const [said] = await once(unrelated.stdout, 'data')
  const pidFile = join(dataDir, 'postgres', 'postmaster.pid')
  const left = readFileSync(pidFile, 'utf8')

  for (const pid of [unrelated.pid, Number(said)]) {
    writeFileSync(pidFile, left.replace(/^\d+/, String(pid)))
    const next = await open(t, { dataDir, role: 'serve' })
    t.equal(await recall(next.url), 'kept')
    await next.stop()
  }
  t.equal(isRunning(unrelated.pid!), true)
})

t.test('an empty pid file, as a power cut leaves it, is no obstacle', async (t) => {
  const dataDir = await usedDir(t)
  await (await open(t, { dataDir, role: 'serve' })).stop()
  writeFileSync(join(dataDir, 'postgres', 'postmaster.pid'), '')
  await open(t, { dataDir, role: 'serve' })
})

t.test('a lock of a start that is no more is no obstacle', async (t) => {
  const dataDir = await usedDir(t)
  // Its id has gone to a process that runs: this one.
  writeFileSync(join(dataDir, 'postgres.lock'), `${process.pid}-an-earlier-one`)
  await open(t, { dataDir, role: 'command' })
})

t.test('a service that is no more is no obstacle, though its id has gone to another process', async (t) => {
  const dataDir = await usedDir(t)
  writeFileSync(join(dataDir, `postgres.used-by.serve.${process.pid}-an-earlier-one.x`), '')
  const service = await open(t, { dataDir, role: 'serve' })
  const pid = postmasterOf(dataDir)
  await service.stop()
  t.equal(isRunning(pid), false, 'nor does it keep Postgres running')
  t.strictSame(
    readdirSync(dataDir).filter((name) => name.startsWith('postgres.used-by')),
    [],
  )
})

t.test('after the crash of one backend the service still holds its DATA_DIR', async (t) => {
  const dataDir = await usedDir(t)
  const service = await open(t, { dataDir, role: 'serve' })
  const busy = query(service.url, 'select pg_sleep(60)').catch(() => 'crashed')
  const sleeping = `select pid from pg_stat_activity where query like '%pg_sleep%' and pid <> pg_backend_pid()`
  let backend = 0
  await until(async () => {
    backend = (await query(service.url, sleeping))[0]?.pid ?? 0
    return backend !== 0
  })
  process.kill(backend, 'SIGKILL')
  t.equal(await busy, 'crashed')
  await until(async () => (await query(service.url, 'select 1').catch(() => [])).length === 1)
  await t.rejects(open(t, { dataDir, role: 'serve' }), /already served/)
  await service.stop()
  t.equal(await Promise.race([service.exited, 'nothing']), 'nothing')
})

t.test(
  'a backend that outlives its killed postmaster does not keep the next from starting',
  { skip: !onLinux },
  async (t) => {
    const dataDir = await usedDir(t)
    const pg = await open(t, { dataDir, role: 'serve' })
    const busy = query(pg.url, 'select count(*) from generate_series(1, 100000000000)').catch(() => {})
    const running = `select pid from pg_stat_activity where query like '%generate_series%' and pid <> pg_backend_pid()`
    let stray = 0
    await until(async () => {
      stray = (await query(pg.url, running))[0]?.pid ?? 0
      return stray !== 0
    })
    process.kill(postmasterOf(dataDir), 'SIGKILL')
    await pg.exited
    t.equal(isRunning(stray), true)

    await open(t, { dataDir, role: 'serve' })
    t.equal(isRunning(stray), false)
    await busy
  },
)

t.test('what cannot work is told in one plain line', async (t) => {
  const parent = parentDir(t)
  const line = (dataDir: string) => open(t, { dataDir, role: 'serve' }).catch((error) => error.message)
  writeFileSync(join(parent, 'file'), '')
  t.equal(await line(join(parent, 'file')), `DATA_DIR ${join(parent, 'file')} is not a directory`)

  mkdirSync(join(parent, 'other', 'postgres'), { recursive: true })
  writeFileSync(join(parent, 'other', 'postgres', 'notes.txt'), '')
  t.match(await line(join(parent, 'other')), /holds something that is not a Postgres/)

  writeFileSync(join(parent, 'other', 'postgres', 'PG_VERSION'), '12\n')
  t.match(await line(join(parent, 'other')), /was made by Postgres 12 and this Latchkey brings Postgres \d+/)

  const dataDir = await usedDir(t)
  const control = join(dataDir, 'postgres', 'global', 'pg_control')
  renameSync(control, `${control}.away`)
  t.teardown(() => renameSync(`${control}.away`, control))
  t.match(
    await line(dataDir),
    /^Postgres did not start: .*could not find the database system.*\(its log is .*\)$/s,
  )
})

t.test('the log is cut at a start when it has grown beyond 1 MB', async (t) => {
  const dataDir = await usedDir(t)
  writeFileSync(join(dataDir, 'postgres.log'), 'x'.repeat(1024 * 1024 + 1))
  await open(t, { dataDir, role: 'serve' })
  t.ok(statSync(join(dataDir, 'postgres.log')).size < 10_000)
})

t.test('a long path with spaces, from a directory that cannot be read', async (t) => {
  const parent = parentDir(t)
  const dataDir = join(parent, 'with spaces', 'long'.repeat(40), `it's "here"`)
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
  const pg = await open(t, { dataDir, role: 'serve' })
  await remember(pg.url, 'kept')
  t.equal(await recall(pg.url), 'kept')
})

t.test('a relative DATA_DIR is meant from the current directory', async (t) => {
  const dataDir = await usedDir(t)
  const home = process.cwd()
  process.chdir(dirname(dataDir))
  t.teardown(() => process.chdir(home))
  const pg = await open(t, { dataDir: basename(dataDir), role: 'command' })
  t.equal(pg.created, false)
})

t.test('as root', { skip: !(asRoot && onLinux) && 'only root on Linux has to step aside' }, async (t) => {
  t.test('where another user can reach everything, Postgres runs as that user', async (t) => {
    const parent = parentDir(t)
    chmodSync(parent, 0o755)
    const dataDir = join(parent, 'data')
    const progress: string[] = []
    const pg = await open(t, { dataDir, role: 'serve', onProgress: (line) => progress.push(line) })
    await remember(pg.url, 'kept')

    const status = readFileSync(`/proc/${postmasterOf(dataDir)}/status`, 'utf8')
    t.match(status, /^Uid:\t65534\t65534\t65534\t65534$/m)
    t.match(status, /^Gid:\t65534\t65534\t65534\t65534$/m)
    t.match(status, /^Groups:\s*$/m)
    t.match(status, /^CapEff:\t0+$/m)
    const cluster = join(dataDir, 'postgres')
    const files = readdirSync(cluster, { recursive: true, encoding: 'utf8' })
    t.strictSame(
      // A temporary file may be gone again.
      files.filter(
        (file) => (statSync(join(cluster, file), { throwIfNoEntry: false })?.uid ?? 65534) !== 65534,
      ),
      [],
      'each file is its own',
    )
    t.notOk(
      progress.some((line) => /user namespace/.test(line)),
      'nothing to warn of',
    )
    t.equal(modeOf(join(dataDir, 'postgres-password')), 0o600)
  })

  t.test('where it cannot, Postgres runs in a user namespace, and the first start says so', async (t) => {
    const parent = parentDir(t)
    const progress: string[] = []
    const say = (line: string) => progress.push(line)
    await open(t, { dataDir: join(parent, 'data'), role: 'serve', onProgress: say })
    t.ok(
      progress.includes(
        `User 65534 cannot reach ${parent}: Postgres runs in a user namespace, with access to root's files`,
      ),
    )
  })

  const skip = !(await canBlockNamespaces()) && 'no namespace can be made to block them in'

  t.test(
    'no namespaces: data under a 0700 parent is kept, and files change hands there and back',
    { skip },
    async (t) => {
      const parent = join(parentDir(t), 'private')
      const dataDir = join(parent, 'data')
      mkdirSync(parent, { mode: 0o700 })
      const cluster = join(dataDir, 'postgres')

      const without = await spawnLatchkey(t, dataDir, 'serve', { namespaces: false })
      t.equal(without.created, true)
      await remember(without.url, 'kept')
      t.equal(statSync(cluster).uid, 65534)
      await without.stop()

      const withThem = await open(t, { dataDir, role: 'serve' })
      t.equal(await recall(withThem.url), 'kept')
      t.equal(statSync(cluster).uid, 0)
      t.equal(statSync(join(cluster, 'base', '1', 'PG_VERSION')).uid, 0)
      await withThem.stop()

      const again = await spawnLatchkey(t, dataDir, 'serve', { namespaces: false })
      t.equal(await recall(again.url), 'kept')
      t.equal(statSync(cluster).uid, 65534)
      t.equal(statSync(join(dataDir, 'postgres-password')).uid, 0)
      t.equal(modeOf(dataDir), 0o700)
    },
  )

  t.test('neither namespaces nor setpriv: another user, if it can reach the directory', async (t) => {
    const parent = parentDir(t)
    const path = process.env.PATH
    t.teardown(() => {
      process.env.PATH = path
    })
    process.env.PATH = '/nowhere'
    const refused = await open(t, { dataDir: join(parent, 'data'), role: 'serve' }).catch(
      (error) => error.message,
    )
    t.match(
      refused,
      `Postgres refuses to run as root, and user 65534 cannot reach ${parent}: run Latchkey as another user`,
    )

    chmodSync(parent, 0o755)
    const pg = await open(t, { dataDir: join(parent, 'data'), role: 'serve' })
    t.equal(pg.created, true)
    t.equal(statSync(join(parent, 'data', 'postgres')).uid, 65534)
    t.equal(modeOf(join(parent, 'data')), 0o701)
  })

  t.test("another user's data stays that user's", async (t) => {
    const dataDir = await usedDir(t)
    execFileSync('chown', ['-R', '1000:1000', dataDir])
    t.teardown(() => execFileSync('chown', ['-R', '0:0', dataDir]))
    await open(t, { dataDir, role: 'command' })
    t.equal(statSync(join(dataDir, 'postgres')).uid, 1000)
    t.equal(statSync(join(dataDir, 'postgres', 'postmaster.pid')).uid, 1000)
  })
})
