// Postgres away: what cannot be decided is a 503 that says when to come back, and never a 401 or a 404.
import t, { type Test } from 'tap'
import { makeCaller, makeKey, realTimeLimits, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { startPrivatePostgres, useServices } from '../services/index.ts'
import { expectError, expectRated, isRated } from './expect-error.ts'

const services = await useServices(t)

async function withoutPostgres(t: Test) {
  const postgres = await startPrivatePostgres(t)
  const instance = await startInstance(t, { ...services, databaseUrl: postgres.url }, {}, realTimeLimits)
  const caller = await makeCaller(instance)
  const sibling = await makeKey(instance, { userId: caller.userId })
  t.equal((await instance.ask('GET', '/v1/verify', { token: caller.token })).status, 200, 'it is cached')
  return { postgres, instance, caller, sibling }
}

t.test('with Postgres away everything that needs it is 503, and comes back without a restart', async (t) => {
  const { postgres, instance, caller, sibling } = await withoutPostgres(t)
  await postgres.kill()
  const { token } = caller

  const asked: [method: string, path: string, json?: unknown][] = [
    ['GET', '/v1/keys'],
    ['GET', `/v1/keys/${sibling.id}`],
    ['GET', '/v1/keys/apk_0'],
    ['POST', '/v1/keys', { name: 'x' }],
    ['PATCH', `/v1/keys/${sibling.id}`, { name: 'x' }],
    ['DELETE', `/v1/keys/${sibling.id}`],
  ]
  for (const [method, path, json] of asked) {
    const answer = await instance.ask(method, path, { token, ...(json !== undefined && { json }) })
    expectError(t, answer, 'service_unavailable')
    expectRated(t, answer)
  }

  // It cannot be known whether such a key is good, and a refusal could not be recorded.
  const undecided: Record<string, string>[] = [
    {},
    { authorization: 'Basic eDp5' },
    { authorization: 'Bearer sk_1' },
    { authorization: `Bearer lk_${'0'.repeat(38)}` },
    { authorization: `Bearer ${sibling.token}` },
  ]
  for (const headers of undecided) {
    const answer = await instance.ask('GET', '/v1/verify', { headers })
    expectError(t, answer, 'service_unavailable')
    t.notOk(isRated(answer))
  }

  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200, 'a cached key goes on')
  t.equal((await instance.ask('GET', '/docs/errors/service_unavailable')).status, 200)

  await postgres.restart()
  await until('it is back', async () => {
    const back = await instance.ask('GET', '/v1/verify', { token: sibling.token })
    if (back.status !== 200) expectError(t, back, 'service_unavailable')
    return back.status === 200
  })
  t.equal(
    (await instance.ask('GET', `/v1/keys/${sibling.id}`, { token })).body.name,
    sibling.name,
    'unchanged',
  )
  expectError(t, await instance.ask('GET', '/v1/verify'), 'unauthorized')
})

t.test('with Postgres frozen nothing hangs, and nothing is refused that could be good', async (t) => {
  const { postgres, instance, caller, sibling } = await withoutPostgres(t)
  await postgres.freeze()
  const answers = await Promise.all([
    instance.ask('GET', '/v1/verify', { token: sibling.token }),
    instance.ask('GET', '/v1/verify'),
    instance.ask('GET', '/v1/keys', { token: caller.token }),
    instance.ask('POST', '/v1/keys', { token: caller.token, json: { name: 'x' } }),
  ])
  for (const answer of answers) expectError(t, answer, 'service_unavailable')
  await postgres.thaw()
})
