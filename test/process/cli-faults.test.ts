// A command that cannot be done: exit code 1 and one plain line that says why.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { open, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { poolBounds } from '../../src/wiring/pools.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { builtCli } from './built.ts'
import { aFolder, type Ended, externalEnv, openCommandLine, runLatchkey, spawnLatchkey } from './latchkey.ts'
import { until } from './until.ts'

type Case = [words: string[], why: RegExp]

function failed(t: Test, { code, stdout, stderr }: Ended, words: string[], why: RegExp) {
  const what = words.join(' ').slice(0, 60)
  t.equal(code, 1, `${what}: exit code 1`)
  t.equal(stdout, '', `${what}: nothing on stdout`)
  t.match(stderr, /^[^\n]+\n$/, `${what}: one line`)
  t.match(stderr, why, `${what}: says why`)
  t.notMatch(stderr, /Error:|\bat .*:\d+:\d+|node:/, `${what}: no stack`)
}

t.test('a command that is written wrongly, or names an absent id, is refused in one line', async (t) => {
  const limits = { MAX_RATE_LIMIT_RPM: '5000', DEFAULT_RATE_LIMIT_RPM: '77', MAX_KEYS_PER_USER: '1' }
  const { run } = await openCommandLine(t, externalEnv(await useServices(t), limits))
  // The database decides whether an expiry is in the past, and first whether there is such a user.
  const made = await run('users', 'create', '--name', 'x', '--external-id', 'taken', '--json')
  const user = ['--user', JSON.parse(made.stdout).id]
  const create = ['keys', 'create', ...user, '--name', 'x']
  const aKey = async () => {
    const { id } = JSON.parse((await run('users', 'create', '--name', 'x', '--json')).stdout)
    const made = await run('keys', 'create', '--user', id, '--name', 'x', '--json')
    return { ...JSON.parse(made.stdout), owner: id }
  }
  const [only, revoked, left] = [await aKey(), await aKey(), await aKey()]
  t.equal(only.rate_limit_rpm, 77)
  const inGrace = await aKey()
  const rotated = await run('keys', 'rotate', inGrace.id, '--expires-in', '60', '--json')
  const successor = JSON.parse(rotated.stdout).id
  await run('keys', 'revoke', revoked.id)
  await run('users', 'delete', left.owner)
  const cases: Case[] = [
    [['frobnicate'], /frobnicate/],
    [['constructor'], /unknown command 'constructor'; see latchkey --help/],
    [['user', 'list'], /'user' \(Did you mean users\?\); see latchkey --help/],
    [['users', 'lst'], /'lst' \(Did you mean list\?\); see latchkey users --help/],
    [
      ['users', 'list', '--external'],
      /'--external' \(Did you mean --external-id\?\); see latchkey users list --help/,
    ],
    [['users', 'list', '--limit', '3'], /--limit/],
    [['users', 'list', 'again', '--json'], /too many arguments for 'list'/],
    [['users', 'create', '--json'], /--name/],
    [['users', 'create', '--name', ' \t '], /--name/],
    [['users', 'create', '--name', '--json'], /--name needs a value; if it is --json, write --name=--json/],
    [['users', 'create', '--name', 'x', '--external-id', '--help'], /--external-id needs a value/],
    [['users', 'delete'], /missing required argument 'usr_…'/],
    [['users', 'delete', ''], /needs <usr_…>/],
    [['users', 'create', '--nmae', 'x'], /Did you mean --name/],
    [['users', 'create', '--name', `once ${tokenFormat('lk').mint()}`], /--name/],
    [['keys', 'create', '--name', 'x'], /--user/],
    [['keys', 'create', ...user, '--name', 'x'.repeat(256)], /--name/],
    [['keys', 'create', ...user, '--name', 'bell\x07'], /--name/],
    [[...create, '--rate-limit-rpm', '1e3'], /--rate-limit-rpm/],
    [[...create, '--rate-limit-rpm', '1000000001'], /--rate-limit-rpm/],
    [[...create, '--rate-limit-rpm', '5001'], /--rate-limit-rpm must be at most 5000 \(MAX_RATE_LIMIT_RPM\)/],
    [['keys', 'update', 'apk_absent', '--rate-limit-rpm', '5001'], /at most 5000/],
    [['keys', 'update', 'apk_absent', '--rate-limit-rpm', '5000'], /apk_absent/],
    [[...create, '--expires-at', '1000000000'], /--expires-at/],
    [[...create, '--expires-at', String(Date.now() + 60_000)], /--expires-at/],
    [['keys', 'list'], /--user or --prefix/],
    [['keys', 'list', '--prefix', tokenFormat('lk').mint()], /for a whole key: latchkey lookup -/],
    [['keys', 'list', '--prefix', 'lk_Wg0'], /--prefix needs the 10 characters/],
    [['keys', 'list', '--prefix', 'lk_Wg0Wg0Wg'], /--prefix needs the 10 characters/],
    [['keys', 'list', ...user, '--status', 'dead'], /--status must be one of active, revoked, expired/],
    [['keys', 'update', 'apk_absent'], /--rate-limit-rpm/],
    [['keys', 'update', 'apk_absent', '--name', 'x'], /apk_absent/],
    [['keys', 'get', 'apk_absent'], /apk_absent/],
    [['keys', 'get', tokenFormat('lk').mint()], /no key \[redacted key\]/],
    [['keys', 'rotate', 'apk_absent'], /apk_absent/],
    [['keys', 'rotate', 'apk_absent', '--expires-in', '-1'], /--expires-in/],
    // Each at its bound.
    [['keys', 'rotate', 'apk_absent', '--expires-in', '31536000'], /no key apk_absent/],
    [['audit', 'list', '--key', 'apk_absent', '--limit', '10000'], /no key apk_absent/],
    [['audit', 'list', '--limit', '0'], /--limit must be a whole number from 1 to 10000/],
    [['users', 'update', 'usr_absent', '--name', '🔑'.repeat(255)], /no user usr_absent/],
    [['users', 'get', 'usr_absent'], /usr_absent/],
    [['users', 'update', 'usr_absent'], /--external-id/],
    [['users', 'update', 'usr_absent', '--name', 'x'], /usr_absent/],
    [['users', 'update', 'usr_absent', '--external-id', `once ${tokenFormat('lk').mint()}`], /--external-id/],
    [['users', 'create', '--name', 'y', '--external-id', 'taken'], /external id/],
    [['users', 'create', '--name', 'y', '--external-id', ''], /--external-id must have 1 to 255 characters/],
    [['users', 'update', only.owner, '--external-id', 'taken'], /another user has this external id/],
    [['users', 'update', user[1]!, '--external-id', ''], /--external-id must have 1 to 255 characters/],
    [['users', 'create', '--name', 'y', '--external-id', tokenFormat('lk').mint()], /--external-id contains/],
    [['users', 'update', user[1]!, '--name', tokenFormat('lk').mint()], /--name contains/],
    [['keys', 'update', only.id, '--name', tokenFormat('lk').mint()], /--name contains/],
    [['keys', 'create', '--user', only.owner, '--name', 'x'], /already has 1 usable keys/],
    [['keys', 'update', only.id, '--expires-at', '1000000000'], /must be in the future; it is now \d+\n/],
    [['keys', 'rotate', successor, '--expires-in', '60'], /still work: rotate without --expires-in/],
    [['keys', 'update', revoked.id, '--name', 'x'], /key apk_\w+ is revoked or expired/],
    [['keys', 'rotate', revoked.id], /key apk_\w+ is revoked or expired/],
    [['keys', 'rotate', left.id], /the owner of key apk_\w+ is deleted/],
    [['users', 'revoke-keys', 'usr_absent'], /usr_absent/],
    [['lookup', 'nobody'], /nothing/],
    [['top', '--limit', '101'], /--limit must be a whole number from 1 to 100/],
    [['completion', 'csh'], /bash, zsh, fish/],
    [['audit', 'list', '--since', 'yesterday'], /--since/],
    [['audit', 'list', '--since', '2026-13-45', '--json'], /--since/],
    [['audit', 'list', '--reason', 'boredom'], /--reason/],
    [['audit', 'list', '--event', 'boredom'], /--event/],
    [['audit', 'list', '--until', 'tomorrow'], /--until/],
    [['audit', 'list', '--since', '1h', '--until', '2h'], /--since must be before --until/],
    [['audit', 'list', '--follow', '--until', '1h'], /--follow' cannot be used with option '--until/],
    [['audit', 'stats', '--since', '1h', '--until', '2h'], /--since must be before --until/],
    [['users', 'update', user[1]!, '--no-external-id', '--external-id', 'x'], /contradict/],
    [['keys', 'update', 'apk_absent', '--expires-at', '2099-01-01', '--no-expires-at'], /contradict/],
    [['users', 'delete', 'usr_absent'], /usr_absent/],
    [['users', 'delete', 'apk_mistyped', '--json'], /apk_mistyped/],
    [['keys', 'create', '--user', 'usr_absent', '--name', 'x'], /usr_absent/],
    [['keys', 'list', '--user', 'usr_absent'], /usr_absent/],
    [['keys', 'revoke', 'apk_absent', '--json'], /apk_absent/],
    [['audit', 'find', 'req_absent'], /req_absent/],
  ]
  for (const [words, why] of cases) failed(t, await run(...words), words, why)
})

t.test('an error that is longer than a pipe holds is written to its end', async (t) => {
  const word = 'x'.repeat(120_000)
  const command = `'${process.execPath}' '${await builtCli()}' ${word} 2>&1 | { sleep 1; wc -c; }`
  const shell = spawn('bash', ['--norc', '-c', 'eval "$(cat)"'], { env: { PATH: process.env.PATH } })
  shell.stdin.end(command)
  t.ok(Number(await text(shell.stdout)) > word.length)
})

t.test('a Node that cannot run it gets one line that says so', async (t) => {
  const pretend = join(await aFolder(t), 'old.cjs')
  const versions = (node: string) =>
    writeFile(
      pretend,
      `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${node}' } })`,
    )
  const env = { NODE_OPTIONS: `--require ${pretend}` }
  for (const old of ['18.20.8', '20.9.0', '21.7.3', '22.1.0']) {
    await versions(old)
    const { code, stderr } = await runLatchkey(t, env, '--version')
    t.equal(code, 1)
    t.match(
      stderr,
      new RegExp(`^latchkey: Latchkey \\S+ needs Node \\^20\\.19 \\|\\| >=22\\.2, and this is ${old}\\n$`),
    )
  }
  for (const recent of ['20.19.0', '22.2.0', '23.0.0']) {
    await versions(recent)
    t.equal((await runLatchkey(t, env, '--version')).code, 0, recent)
  }
})

t.test('a command whose database cannot be reached says so, without the password', async (t) => {
  const env = { ...externalEnv(await useServices(t)), DATABASE_URL: 'postgres://ada:hunter2@127.0.0.1:1/x' }
  const words = ['users', 'list']
  failed(t, await runLatchkey(t, env, ...words), words, /^(?!.*hunter2).*Postgres/)
})

t.test('a change on a server that takes no writes says where DATABASE_URL should point', async (t) => {
  const { databaseUrl, redisUrl } = await useServices(t)
  const env = externalEnv({ databaseUrl: `${databaseUrl}?default_transaction_read_only=on`, redisUrl })
  const words = ['users', 'create', '--name', 'x']
  failed(
    t,
    await runLatchkey(t, env, ...words),
    words,
    /takes no writes: point DATABASE_URL at the primary.* default_transaction_read_only/,
  )
})

t.test('a reader that has gone may have seen enough, but not of a new key', async (t) => {
  const env = externalEnv(await useServices(t))
  const { id } = JSON.parse((await runLatchkey(t, env, 'users', 'create', '--name', 'x', '--json')).stdout)
  const unread = async (...words: string[]) => {
    const child = spawn(process.execPath, [await builtCli(), ...words], {
      env: { PATH: process.env.PATH, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 60_000,
      killSignal: 'SIGKILL',
    })
    child.stdout.destroy()
    const [[code], stderr] = await Promise.all([once(child, 'close'), text(child.stderr)])
    return { code, stderr }
  }
  t.strictSame(await unread('users', 'list'), { code: 0, stderr: '' })
  t.strictSame(await unread('audit', 'list', '--follow'), { code: 0, stderr: '' })
  const lost =
    /^latchkey: .*could not be written \(write EPIPE\).*Nobody has seen the new key: rotate or revoke apk_\w{26}\n$/
  t.match(await unread('keys', 'create', '--user', id, '--name', 'x'), { code: 1, stderr: lost })
  const [key] = JSON.parse((await runLatchkey(t, env, 'keys', 'list', '--user', id, '--json')).stdout)
  t.match(await unread('keys', 'rotate', key.id, '--expires-in', '600', '--json'), { code: 1, stderr: lost })
})

t.test('a command waits longer for Postgres than a request may', async (t) => {
  const { databaseUrl, redisUrl } = await useServices(t)
  const env = externalEnv({ databaseUrl, redisUrl })
  const { run } = await openCommandLine(t, env)
  const { id: userId } = JSON.parse((await run('users', 'create', '--name', 'x', '--json')).stdout)
  const made = await run('keys', 'create', '--user', userId, '--name', 'x', '--json')
  const { id } = JSON.parse(made.stdout)
  const sql = openDatabase(t, databaseUrl, 2)
  const updating = await sql.begin(async (holder) => {
    await holder`select from api_keys where id = ${id} for update`
    const updating = await spawnLatchkey(t, env, 'keys', 'update', id, '--name', 'y')
    let hasEnded = false
    void updating.ended.then(() => {
      hasEnded = true
    })
    await until('it has waited for so long, or given up', async () => {
      const late = await sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
          and clock_timestamp() - query_start > make_interval(secs => ${poolBounds.management.timeoutMs / 1000})`
      return hasEnded || late.length > 0
    })
    return updating
  })
  t.match(await updating.ended, { code: 0, stderr: '' })
})

t.test('a new key is shown before the connections are closed, however that ends', async (t) => {
  const { databaseUrl, redisUrl } = await useServices(t)
  const env = externalEnv({ databaseUrl, redisUrl })
  const { id } = JSON.parse((await runLatchkey(t, env, 'users', 'create', '--name', 'x', '--json')).stdout)
  const { hostname, port } = new URL(databaseUrl)
  const closing = new AbortController()
  // Never passes on that the server has closed a connection, so that a close takes a second.
  const relay = createServer({ allowHalfOpen: true }, (client) => {
    const server = connect(Number(port), hostname)
    client.pipe(server).pipe(client, { end: false })
    client.on('data', (bytes) => {
      if (bytes.includes('create_key')) client.once('end', () => closing.abort())
    })
    for (const socket of [client, server]) {
      socket.on('error', () => {})
      t.teardown(() => socket.destroy())
    }
  }).listen(0, '127.0.0.1')
  await once(relay, 'listening')
  t.teardown(() => relay.close())
  const url = new URL(databaseUrl)
  url.host = `127.0.0.1:${(relay.address() as AddressInfo).port}`

  const words = ['keys', 'create', '--user', id, '--name', 'x']
  const creating = await spawnLatchkey(t, { ...env, DATABASE_URL: url.href }, ...words)
  closing.signal.addEventListener('abort', () => creating.kill('SIGINT'))
  const { signal, stdout } = await creating.ended
  t.equal(signal, 'SIGINT')
  t.match(stdout, /^apk_\S+ {2}x\nlk_\S+\n\(The key is shown only this once\.\)\n$/)
})

t.test('a rotation shows the new key before the wait for every instance, however that ends', async (t) => {
  const { databaseUrl, redisUrl } = await useServices(t)
  const { run } = await openCommandLine(t, externalEnv({ databaseUrl, redisUrl }))
  const { id: userId } = JSON.parse((await run('users', 'create', '--name', 'x', '--json')).stdout)
  const aKey = async () =>
    JSON.parse((await run('keys', 'create', '--user', userId, '--name', 'x', '--json')).stdout).id
  const withoutRedis = (cacheS: number) => ({
    ...externalEnv({ databaseUrl, redisUrl: 'redis://127.0.0.1:1' }),
    KEY_CACHE_SECONDS: String(cacheS),
    OUTAGE_CACHE_SECONDS: '0',
  })
  const shown = /^(apk_\S+) {2}x\nlk_\S+\n\(The key is shown only this once\.\)\n$/
  const waiting = 'The change is stored. Waiting until every instance sees it\n'

  const interrupted = await aKey()
  const rotating = await spawnLatchkey(t, withoutRedis(60), 'keys', 'rotate', interrupted)
  await until('it waits', () => rotating.stderr === waiting)
  rotating.kill('SIGINT')
  const { signal, stdout } = await rotating.ended
  t.equal(signal, 'SIGINT')
  t.match(stdout, shown)
  const successorId = shown.exec(stdout)?.[1]
  const words = ['keys', 'rotate', interrupted]
  const again = `${successorId} replaced it; if its secret is lost, rotate that one\n`
  failed(t, await run(...words), words, new RegExp(again))

  const sql = openDatabase(t, databaseUrl)
  // Reports no fence, and is never silent for long enough.
  await sql`insert into instances (id, version, started_at, seen_at, counting, postgres, traffic, fence)
    values ('ins_1', '1', now(), now() + interval '1 hour', 'shared', 'ok', '{}', 0)`
  const unconfirmed = await runLatchkey(t, withoutRedis(0), 'keys', 'rotate', await aKey())
  t.equal(unconfirmed.code, 1)
  t.match(unconfirmed.stdout, shown)
  t.match(
    unconfirmed.stderr,
    /\nlatchkey: The change is stored, but not yet confirmed everywhere\. Repeat it [^\n]+\n$/,
  )
})

t.test(
  'output that cannot be written is a fault, and what was done is done',
  {
    skip: !existsSync('/dev/full') && 'there is no /dev/full on this machine',
  },
  async (t) => {
    const env = externalEnv(await useServices(t))
    const full = await open('/dev/full', 'w')
    t.teardown(() => full.close())
    const cli = await builtCli()
    const unwritten = async (...words: string[]) => {
      const child = spawn(process.execPath, [cli, ...words], {
        env: { PATH: process.env.PATH, ...env },
        stdio: ['ignore', full.fd, 'pipe'],
      })
      const [[code], stderr] = await Promise.all([once(child, 'close'), text(child.stderr!)])
      return { code, stderr }
    }
    const { code, stderr } = await unwritten('users', 'create', '--name', 'x', '--external-id', 'full')
    t.equal(code, 1)
    t.match(stderr, /^latchkey: the output could not be written \(ENOSPC[^\n]*\); [^\n]* is done\n$/)
    const { stdout } = await runLatchkey(t, env, 'users', 'list', '--external-id', 'full', '--json')
    const [user] = JSON.parse(stdout)
    t.match(user, { name: 'x' })
    t.match(await unwritten('keys', 'create', '--user', user.id, '--name', 'x'), {
      code: 1,
      stderr: /^latchkey: .*\(ENOSPC.*is done\. Nobody has seen the new key: rotate or revoke apk_\w{26}\n$/,
    })
  },
)
