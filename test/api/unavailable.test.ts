// Postgres away: what cannot be decided is a 503 that says when to come back, soon, and never a 401 or a 404.
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { type Answer, makeCaller, makeKey, startInstance } from '../instance.ts'
import { startPrivatePostgres, useServices } from '../services/index.ts'
import { expectError, expectRated, isRated } from './expect-error.ts'

const services = await useServices(t)
/** "Soon": far above the service's own deadlines, far below what hangs. */
const soonMs = 5000

async function withoutPostgres(t: Test) {
  const postgres = await startPrivatePostgres(t)
  const instance = await startInstance(t, { ...services, databaseUrl: postgres.url })
  const caller = await makeCaller(instance)
  const sibling = await makeKey(instance, { userId: caller.userId })
  t.equal((await instance.ask('GET', '/v1/verify', { token: caller.token })).status, 200, 'it is cached')
  return { postgres, instance, caller, sibling }
}

async function soon(t: Test, asked: Promise<Answer>): Promise<Answer> {
  const begunMs = performance.now()
  const answer = await asked
  t.ok(performance.now() - begunMs < soonMs, `answered ${answer.status} in time`)
  return answer
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
    const answer = await soon(t, instance.ask(method, path, { token, ...(json !== undefined && { json }) }))
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
    const answer = await soon(t, instance.ask('GET', '/v1/verify', { headers }))
    expectError(t, answer, 'service_unavailable')
    t.notOk(isRated(answer))
  }

  t.equal((await instance.ask('GET', '/v1/verify', { token })).status, 200, 'a cached key goes on')
  t.equal((await instance.ask('GET', '/docs/errors/service_unavailable')).status, 200)

  await postgres.restart()
  const deadlineMs = Date.now() + 15_000
  let back = await instance.ask('GET', '/v1/verify', { token: sibling.token })
  while (back.status !== 200 && Date.now() < deadlineMs) {
    expectError(t, back, 'service_unavailable')
    await pause(100)
    back = await instance.ask('GET', '/v1/verify', { token: sibling.token })
  }
  t.equal(back.status, 200, 'it came back')
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
    soon(t, instance.ask('GET', '/v1/verify', { token: sibling.token })),
    soon(t, instance.ask('GET', '/v1/verify')),
    soon(t, instance.ask('GET', '/v1/keys', { token: caller.token })),
    soon(t, instance.ask('POST', '/v1/keys', { token: caller.token, json: { name: 'x' } })),
  ])
  for (const answer of answers) expectError(t, answer, 'service_unavailable')
  await postgres.thaw()
})
