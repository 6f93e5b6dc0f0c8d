// HASH_SECRET is rotated: keys go on working throughout, and it can be told when the old secret may be forgotten.
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { hashSecret, makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { ask } from './ask.ts'
import { type Env, externalEnv, runLatchkey, type Serving, serveLatchkey } from './latchkey.ts'
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
  const serve = (env: Env) => serveLatchkey(t, externalEnv(services, env))
  const status = async (env: Env) => {
    const { code, stdout, stderr } = await runLatchkey(
      t,
      externalEnv(services, env),
      ...['keys', 'rehash-status', '--json'],
    )
    t.equal(code, 0, stderr)
    return JSON.parse(stdout)
  }
  const sql = postgres(services.databaseUrl, { max: 1, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  /** Resolves when so many keys are kept under the new secret. */
  const hashedAnew = (keys: number) =>
    until(`${keys} keys are hashed anew`, async () => {
      const found = await sql`select from api_keys where hash_secret_id = ${keyHasher(newSecret).secretId}`
      return found.length === keys
    })
  return { caller, used, unused, serve, status, hashedAnew }
}

const verify = async ({ url }: Serving, { token }: { token: string }) =>
  (await ask(`GET ${url}/v1/verify`, { token })).status

t.test(
  'keys of the previous secret work, are hashed anew at use, and are counted until they are',
  async (t) => {
    const { caller, used, unused, serve, status, hashedAnew } = await begin(t)
    t.match(await status(before), { usable: 3, current: 3, left: 0 })
    t.match(await status(after), { usable: 3, current: 0, left: 3, previous: 3, other: 0 })

    const service = await serve(after)
    t.equal(await verify(service, used), 200)
    t.equal(await verify(service, used), 200, 'and from the cache')
    await hashedAnew(1)

    const minted = await ask(`POST ${service.url}/v1/keys`, { token: caller.token, json: { name: 'new' } })
    t.equal(minted.status, 201)
    await hashedAnew(3)
    t.match(await status(after), { usable: 4, current: 3, left: 1, previous: 1, other: 0 })

    const done = await serve({ HASH_SECRET: newSecret })
    t.equal(await verify(done, used), 200, 'without the previous secret: what was used is known')
    t.equal(await verify(done, { token: minted.body.plain_key }), 200)
    t.equal(await verify(done, unused), 401, 'what was not is unknown')
    t.match(await status({ HASH_SECRET: newSecret }), { left: 1, previous: 0, other: 1 })
    t.equal(await verify(service, unused), 200, 'nothing is lost by that')
  },
)

t.test(
  'a revoked key of the previous secret is refused for being revoked, and not hashed anew',
  async (t) => {
    const { caller, used, serve, status } = await begin(t)
    const service = await serve(after)
    t.equal(await verify(service, used), 200)
    const revoked = await ask(`DELETE ${service.url}/v1/keys/${used.id}`, { token: caller.token })
    t.equal(revoked.status, 200)
    t.equal(await verify(service, used), 401)
    t.equal((await status(after)).usable, 2)
  },
)

t.test('without HASH_SECRET_PREVIOUS a key of another secret is unknown', async (t) => {
  const { used, serve, status } = await begin(t)
  const service = await serve({ HASH_SECRET: newSecret, ACCEPT_NEW_HASH_SECRET: '1' })
  t.equal(await verify(service, used), 401)
  t.match(await status(before), { current: 3, left: 0 }, 'and stays as it is')
})

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
    const minted = await ask(`POST ${on.url}/v1/keys`, { token: caller.token, json: { name: 'new' } })
    t.equal(
      await verify(other, { token: minted.body.plain_key }),
      200,
      'minted by the one, known to the other',
    )
  }
})
