// While Postgres is down, what cannot be decided is a 503 that says when to come back, and never a
// 401 or a 404.
import t from 'tap'
import { makeCaller, makeKey, realTimeLimits, startInstance, startOps } from '../instance.ts'
import { parsePrometheus } from '../process/prometheus.ts'
import { until } from '../process/until.ts'
import { openDatabase, startPrivatePostgres, useServices } from '../services/index.ts'
import { expectError, expectRated, isRated } from './expect-error.ts'

const postgres = await startPrivatePostgres(t)
const services = { ...(await useServices(t)), databaseUrl: postgres.url }
const instance = await startInstance(t, services, {}, realTimeLimits)
const caller = await makeCaller(instance)
const { token } = caller
const sibling = await makeKey(instance, { userId: caller.userId })

const ops = await startOps(t, instance)
/** The status and the body of readiness, and the gauge. */
async function readiness(of = ops) {
  const { status, body } = await of.ask('GET', '/readyz')
  const { text } = await of.ask('GET', '/metrics')
  return [status, body.postgres, parsePrometheus(text).value('latchkey_postgres_degraded')]
}

const becomes = (state: string, of = ops) =>
  until('readiness says so', async () => (await readiness(of)).join() === state)

const verify = (headers: Record<string, string>) => instance.ask('GET', '/v1/verify', { headers })
const withKey = ({ token }: { token: string }) => verify({ authorization: `Bearer ${token}` })

/** A key is answered again once it is looked up; until then it is a 503. */
const untilBack = () =>
  until('Postgres is back', async () => {
    const answer = await withKey(sibling)
    if (answer.status !== 200) expectError(t, answer, 'service_unavailable')
    return answer.status === 200
  })

t.test('while Postgres is frozen nothing hangs, and no key is refused that could be good', async (t) => {
  t.equal((await withKey(caller)).status, 200, 'it is cached')
  // On a busy machine, a look-up may have taken too long.
  await becomes('200,ok,0')
  // Connects for changes of many keys, which may take longer than other work.
  const { userId } = await makeCaller(instance)
  const revokeAll = () => ops.ask('POST', `/admin/users/${userId}/revoke-keys`)
  t.strictSame((await revokeAll()).body, { revoked: 1 })
  await postgres.freeze()
  const startMs = performance.now()
  const answers = await Promise.all([
    withKey(sibling),
    verify({}),
    instance.ask('GET', '/v1/keys', { token }),
    instance.ask('POST', '/v1/keys', { token, json: { name: 'x' } }),
    revokeAll(),
    ops.ask('DELETE', `/admin/users/${userId}`),
  ])
  for (const answer of answers) expectError(t, answer, 'service_unavailable')
  t.ok(performance.now() - startMs < 15_000, 'not after the half minute that changes of many keys may take')
  await postgres.thaw()
  await until('a creation works again', async () => {
    const { status } = await instance.ask('POST', '/v1/keys', { token, json: { name: 'x' } })
    return status === 201
  })
})

t.test(
  'while Postgres is down everything that needs it is 503, and it recovers without a restart',
  async (t) => {
    // Not yet seen, so that it must be looked up.
    const unseen = await makeKey(instance, { userId: caller.userId })
    t.equal((await withKey(caller)).status, 200, 'it is cached')
    await postgres.kill()

    const requests: [method: string, path: string, json?: unknown][] = [
      ['GET', '/v1/keys'],
      ['GET', `/v1/keys/${sibling.id}`],
      ['GET', '/v1/keys/apk_0'],
      ['POST', '/v1/keys', { name: 'x' }],
      ['PATCH', `/v1/keys/${sibling.id}`, { name: 'x' }],
      ['DELETE', `/v1/keys/${sibling.id}`],
    ]
    for (const [method, path, json] of requests) {
      const answer = await instance.ask(method, path, { token, ...(json !== undefined && { json }) })
      expectError(t, answer, 'service_unavailable')
      expectRated(t, answer)
    }

    // Whether such a key is good cannot be known, and a refusal cannot be recorded.
    const undecided = ['Basic eDp5', 'Bearer sk_1', `Bearer lk_${'0'.repeat(38)}`, `Bearer ${unseen.token}`]
    for (const headers of [{}, ...undecided.map((authorization) => ({ authorization }))]) {
      const answer = await verify(headers)
      expectError(t, answer, 'service_unavailable')
      t.notOk(isRated(answer))
    }
    t.equal((await withKey(caller)).status, 200, 'a cached key still works')
    t.equal((await instance.ask('GET', '/docs/errors/service_unavailable')).status, 200)
    t.strictSame(await readiness(), [200, 'down', 1], 'it stays ready')
    t.equal((await ops.ask('GET', '/healthz')).status, 200)

    await postgres.restart()
    await untilBack()
    await becomes('200,ok,0')
    const { body } = await instance.ask('GET', `/v1/keys/${sibling.id}`, { token })
    t.match(body, { name: sibling.name, revoked_at: null }, 'unchanged')
    expectError(t, await verify({}), 'unauthorized')
  },
)

t.test('an instance that nobody calls notices too, also that Postgres takes no writes', async (t) => {
  // One that has no look-up left to repeat.
  const idle = await startOps(t, await startInstance(t, services, {}, realTimeLimits))
  await becomes('200,ok,0', idle)
  await postgres.kill()
  await becomes('200,down,1', idle)
  await postgres.restart()
  await becomes('200,ok,0', idle)
  const setReadOnly = async (isOn: boolean) => {
    const sql = openDatabase(t, postgres.url)
    await sql`set default_transaction_read_only = off`
    await sql.unsafe(`alter role current_user set default_transaction_read_only = ${isOn}`)
    await sql`select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()`
  }
  await setReadOnly(true)
  await becomes('200,down,1', idle)
  await setReadOnly(false)
  await becomes('200,ok,0', idle)
})
