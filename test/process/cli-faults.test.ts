// A command that cannot be done: exit code 1 and one plain line that says why.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { useServices } from '../services/index.ts'
import { aFolder, type Env, externalEnv, runLatchkey } from './latchkey.ts'

type Case = [words: string[], why: RegExp]

async function fails(t: Test, env: Env, words: string[], why: RegExp) {
  const { code, stdout, stderr } = await runLatchkey(t, env, ...words)
  const what = words.join(' ').slice(0, 60)
  t.equal(code, 1, `${what}: exit code 1`)
  t.equal(stdout, '', `${what}: nothing on stdout`)
  t.match(stderr, /^[^\n]+\n$/, `${what}: one line`)
  t.match(stderr, why, `${what}: says why`)
  t.notMatch(stderr, /Error:|\bat .*:\d+:\d+|node:/, `${what}: no stack`)
}

/** Two at a time: most of a command's time is its start. */
async function allFail(t: Test, env: Env, cases: Case[]) {
  const left = [...cases]
  const work = async () => {
    for (let next = left.shift(); next; next = left.shift()) await fails(t, env, ...next)
  }
  await Promise.all([work(), work()])
}

t.test('a command that is written wrongly is refused in one line', async (t) => {
  const env = externalEnv(await useServices(t))
  // The database decides whether an expiry is in the past, and first whether there is such a user.
  const made = await runLatchkey(t, env, 'users', 'create', '--name', 'x', '--json')
  const user = ['--user', JSON.parse(made.stdout).id]
  const create = ['keys', 'create', ...user, '--name', 'x']
  await allFail(t, env, [
    [['frobnicate'], /frobnicate/],
    [['users', 'frobnicate'], /users frobnicate/],
    [['users', 'list', '--frobnicate'], /--frobnicate/],
    [['users', 'list', '--limit', '3'], /--limit/],
    [['users', 'list', 'again', '--json'], /again/],
    [['users', 'create', '--json'], /--name/],
    [['users', 'create', '--name', ' \t '], /--name/],
    [['users', 'delete'], /needs an id/],
    [['users', 'delete', ''], /needs an id/],
    [['users', 'create', '--name', `once ${tokenFormat('lk').mint()}`], /--name/],
    [['keys', 'create', '--name', 'x'], /--user/],
    [['keys', 'create', ...user, '--name', 'x'.repeat(256)], /--name/],
    [['keys', 'create', ...user, '--name', 'bell\x07'], /--name/],
    [[...create, '--rate-limit-rpm', '1e3'], /--rate-limit-rpm/],
    [[...create, '--rate-limit-rpm', '1000000001'], /--rate-limit-rpm/],
    [[...create, '--expires-at', '1000000000'], /--expires-at/],
    [[...create, '--expires-at', String(Date.now() + 60_000)], /--expires-at/],
    [['keys', 'list'], /--user/],
    [['audit', 'list', '--since', 'yesterday'], /--since/],
    [['audit', 'list', '--since', '2026-13-45', '--json'], /--since/],
    [['audit', 'list', '--reason', 'boredom'], /--reason/],
  ])
})

t.test('an id that nothing has is named in one line', async (t) => {
  await allFail(t, externalEnv(await useServices(t)), [
    [['users', 'delete', 'usr_absent'], /usr_absent/],
    [['users', 'delete', 'apk_mistyped', '--json'], /apk_mistyped/],
    [['keys', 'create', '--user', 'usr_absent', '--name', 'x'], /usr_absent/],
    [['keys', 'list', '--user', 'usr_absent'], /usr_absent/],
    [['keys', 'revoke', 'apk_absent', '--json'], /apk_absent/],
    [['audit', 'find', 'req_absent'], /req_absent/],
  ])
})

t.test('a Node that is too old is told so in one line', async (t) => {
  const pretend = join(await aFolder(t), 'old.cjs')
  const versions = (node: string) =>
    writeFile(
      pretend,
      `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${node}' } })`,
    )
  const env = { NODE_OPTIONS: `--require ${pretend}` }
  for (const old of ['18.20.8', '20.9.0']) {
    await versions(old)
    const { code, stderr } = await runLatchkey(t, env, '--version')
    t.equal(code, 1)
    t.match(stderr, new RegExp(`^latchkey: Latchkey \\S+ needs Node >=20\\.19, and this is ${old}\\n$`))
  }
  await versions('22.0.0')
  t.equal((await runLatchkey(t, env, '--version')).code, 0)
})

t.test('a command whose database cannot be reached says so, without the password', async (t) => {
  const env = { ...externalEnv(await useServices(t)), DATABASE_URL: 'postgres://ada:hunter2@127.0.0.1:1/x' }
  await fails(t, env, ['users', 'list'], /^(?!.*hunter2).*Postgres/)
})
