// Rotating HASH_SECRET: keys work throughout, and a command says when the old secret is no longer needed.
import t, { type Test } from 'tap'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { hashSecret, type Instance, makeCaller, makeKey, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { type Env, externalEnv, openCommandLine } from './latchkey.ts'
import { until } from './until.ts'

const oldSecret = hashSecret
const newSecret = 'the next secret of the tests, of thirty-two characters at least'
const before: Env = { HASH_SECRET: oldSecret }
const after: Env = { HASH_SECRET: newSecret, HASH_SECRET_PREVIOUS: oldSecret }

/** A user with three keys minted under the old secret. */
async function begin(t: Test) {
  const services = await useServices(t)
  const instance = await startInstance(t, services)
  const caller = await makeCaller(instance)
  const used = await makeKey(instance, { userId: caller.userId })
  const unused = await makeKey(instance, { userId: caller.userId })
  await instance.close()
  const serve = (env: Env) => startInstance(t, services, env)
  const sql = openDatabase(t, services.databaseUrl)
  /** Resolves once this many keys are hashed under the new secret. */
  const rehashed = (keys: number) =>
    until(`${keys} keys are hashed again`, async () => {
      const found = await sql`select from api_keys where hash_secret_id = ${keyHasher(newSecret).secretId}`
      return found.length === keys
    })
  return { services, sql, caller, used, unused, serve, rehashed }
}

const verify = async ({ ask }: Instance, { token }: { token: string }) =>
  (await ask('GET', '/v1/verify', { token })).status

t.test(
  'keys of the previous secret work, are hashed again when used, and are counted until then',
  async (t) => {
    const { services, sql, caller, used, unused, serve, rehashed } = await begin(t)
    const { runWith } = await openCommandLine(t)
    const status = async (env: Env) => {
      const words = ['keys', 'rehash-status', '--json']
      const { code, stdout, stderr } = await runWith(externalEnv(services, env), ...words)
      t.equal(code, 0, stderr)
      return JSON.parse(stdout)
    }
    t.match(await status(before), { usable: 3, current: 3, left: 0 })
    t.match(await status(after), { usable: 3, current: 0, left: 3, previous: 3, other: 0 })
    const printed = await runWith(externalEnv(services, after), 'keys', 'rehash-status')
    t.match(printed.stdout, /^neither +0$/m)
    const without = await runWith(externalEnv(services, before), 'keys', 'rehash-status')
    t.match(without.stdout, /^HASH_SECRET_PREVIOUS +not set$/m)

    const service = await serve(after)
    t.equal(await verify(service, used), 200)
    t.equal(await verify(service, used), 200, 'and from the cache')
    await rehashed(1)
    const metrics = await service.service.metrics.registry.metrics()
    t.match(metrics, /^latchkey_batch_size_sum\{batch="rehash"\} [1-9]/m)

    const minted = await service.ask('POST', '/v1/keys', { token: caller.token, json: { name: 'new' } })
    t.equal(minted.status, 201)
    await rehashed(3)
    t.match(await status(after), { usable: 4, current: 3, left: 1, previous: 1, other: 0 })

    const done = await serve({ HASH_SECRET: newSecret })
    t.equal(await verify(done, used), 200, 'without the previous secret, a key that was used is known')
    t.equal(await verify(done, { token: minted.body.plain_key }), 200)
    t.equal(await verify(done, unused), 401, 'and one that was not is unknown')
    t.match(await status({ HASH_SECRET: newSecret }), { left: 1, previous: 0, other: 1 })
    t.equal(await verify(service, unused), 200, 'it is not lost')

    const revoked = await service.ask('DELETE', `/v1/keys/${unused.id}`, { token: caller.token })
    t.equal(revoked.status, 200)
    t.equal(await verify(service, unused), 401)
    t.equal((await status(after)).usable, 3, 'a revoked key need not be hashed again')
    await sql`update api_keys set expires_at = now() where id = ${used.id}`
    t.equal((await status(after)).usable, 2, 'nor one that has expired')
    await sql`update users set deleted_at = now()`
    t.equal((await status(after)).usable, 0, 'nor those of a deleted user')
  },
)

t.test('instances at different steps of a rotation know the same keys', async (t) => {
  const { caller, used, serve } = await begin(t)
  const [prepared, rotated] = await Promise.all([
    serve({ HASH_SECRET: oldSecret, HASH_SECRET_PREVIOUS: newSecret }),
    serve({ ...after, KEY_CACHE_SECONDS: '0' }),
  ])
  for (let round = 0; round < 20; round++) {
    t.equal(await verify(rotated, used), 200)
    t.equal(await verify(prepared, used), 200)
  }
  for (const [on, other] of [
    [prepared, rotated],
    [rotated, prepared],
  ] as const) {
    const minted = await on.ask('POST', '/v1/keys', { token: caller.token, json: { name: 'new' } })
    t.equal(
      await verify(other, { token: minted.body.plain_key }),
      200,
      'minted by the one, known to the other',
    )
  }
})
