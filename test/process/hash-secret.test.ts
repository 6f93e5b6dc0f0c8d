// A HASH_SECRET under which none of the existing keys was made: refused before it makes every key unknown.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { hashSecret, makeCaller, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { aFolder, type Ended, type Env, externalEnv, openCommandLine, runLatchkey } from './latchkey.ts'

const wrong = 'not the secret of these keys, though long enough'
const wrongToo = 'nor is this one, though it is just as long'

const { runWith } = await openCommandLine(t)

async function begin(t: Test) {
  const services = await useServices(t)
  const instance = await startInstance(t, services)
  const caller = await makeCaller(instance)
  await instance.close()
  const run = (more: Env, ...words: string[]) => runWith(externalEnv(services, more), ...words)
  const sql = openDatabase(t, services.databaseUrl)
  const serve = (more: Env) => runLatchkey(t, externalEnv(services, more), 'serve')
  const expectRefused = ({ code, stdout, stderr }: Ended) => {
    t.equal(code, 1)
    t.equal(stdout, '')
    t.match(
      stderr,
      /^latchkey: none of the usable keys [^\n]*HASH_SECRET[^\n]*ACCEPT_NEW_HASH_SECRET=1[^\n]*\n$/,
    )
    t.notMatch(stderr, wrong)
  }
  const verify = async (more: Env) => {
    const instance = await startInstance(t, services, more)
    const { status } = await instance.ask('GET', '/v1/verify', { token: caller.token })
    await instance.close()
    return status
  }
  return { caller, sql, run, serve, expectRefused, verify }
}

t.test('under a wrong secret the service does not start and the command line mints no key', async (t) => {
  const { caller, sql, run, serve, expectRefused } = await begin(t)
  const create = ['keys', 'create', '--user', caller.userId, '--name', 'x']
  expectRefused(await serve({ HASH_SECRET: wrong, LOG_LEVEL: 'silent' }))
  expectRefused(await serve({ HASH_SECRET: wrong, HASH_SECRET_PREVIOUS: wrongToo, LOG_LEVEL: 'silent' }))
  expectRefused(await run({ HASH_SECRET: wrong }, ...create))
  expectRefused(await run({ HASH_SECRET: wrong }, 'keys', 'rotate', caller.id))
  const [made] = await sql`select count(*)::int as keys, count(revoked_at)::int as revoked from api_keys`
  t.strictSame({ ...made }, { keys: 1, revoked: 0 })
  const { code } = await run({ HASH_SECRET: wrong }, 'keys', 'list', '--user', caller.userId)
  t.equal(code, 0, 'a command that makes no key does not need the secret')
})

t.test('where no key can be found, a scan and a look-up are refused instead of finding none', async (t) => {
  const { caller, sql, run, expectRefused } = await begin(t)
  const leaky = join(await aFolder(t), '.env')
  await writeFile(leaky, caller.token)
  const wrongSecret = { HASH_SECRET: wrong }
  expectRefused(await run(wrongSecret, 'keys', 'scan', leaky))
  const { code, stdout, stderr } = await run(wrongSecret, 'lookup', caller.token)
  expectRefused({ code, stdout, stderr: stderr.replace(/^.*shell.*\n/, ''), signal: null })
  t.equal((await run(wrongSecret, 'lookup', caller.id)).code, 0, 'an id needs no secret')

  const asAcme = await run({ KEY_PREFIX: 'acme' }, 'keys', 'scan', leaky)
  t.strictSame([asAcme.code, asAcme.stdout], [1, ''])
  t.match(asAcme.stderr, /^latchkey: none of the usable keys [^\n]* begins with KEY_PREFIX: [^\n]+\n$/)

  await sql`update api_keys set revoked_at = now()`
  for (const wrongly of [wrongSecret, { KEY_PREFIX: 'acme' }])
    t.match(await run(wrongly, 'keys', 'scan', leaky), { code: 0, stdout: /^no key of this service\n/ })
})

t.test('under a new secret that is accepted it starts, and the old keys are unknown', async (t) => {
  const { caller, sql, run, verify } = await begin(t)
  const accepting = { HASH_SECRET: wrong, ACCEPT_NEW_HASH_SECRET: '1' }
  t.equal(await verify(accepting), 401)
  const create = ['keys', 'create', '--user', caller.userId, '--name', 'x']
  t.equal((await run(accepting, ...create)).code, 0)
  const [old] = await sql`select hash_secret_id as id from api_keys where id = ${caller.id}`
  t.equal(old!.id, keyHasher(hashSecret).secretId, 'and stay as they are')
  t.equal(await verify({ HASH_SECRET: wrong }), 401, 'one usable key of its own is enough from then on')
})

t.test('under the previous secret the keys are known, so it starts', async (t) => {
  const { sql, verify } = await begin(t)
  t.equal(await verify({ HASH_SECRET: wrong, HASH_SECRET_PREVIOUS: hashSecret }), 200)
  for (const [change, undo] of [
    ['update api_keys set revoked_at = now()', 'update api_keys set revoked_at = null'],
    ['update api_keys set expires_at = now()', 'update api_keys set expires_at = null'],
    ['update users set deleted_at = now()', 'update users set deleted_at = null'],
  ] as const) {
    await sql.unsafe(change)
    t.equal(await verify({ HASH_SECRET: wrongToo }), 401, 'without usable keys there is nothing to lose')
    await sql.unsafe(undo)
  }
})
