// A stranger cannot fill the disk: beyond a budget of its address nothing is recorded, and the answer is a 503. Keys that work
// never notice.
import t, { type Test } from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { useServices } from '../services/index.ts'
import { openDatabase } from './database.ts'
import { expectError } from './expect-error.ts'
import { sendRaw } from './raw-http.ts'

const perMinute = 5

async function begin(t: Test, env: Record<string, string> = {}) {
  const services = await useServices(t)
  const more = { REFUSALS_PER_ADDRESS_RPM: String(perMinute), TRUST_PROXY: '1', ...env }
  const instance = await startInstance(t, services, more)
  const sql = openDatabase(t, services.databaseUrl)
  const recorded = async (ip: string) =>
    (await sql`select request_id from audit_log where event = 'auth.refused' and ip = ${ip}`).length
  const ask = (from: string, token?: string) =>
    sendRaw(instance.port, 'GET', '/v1/verify', [
      `X-Forwarded-For: ${from}`,
      ...(token === undefined ? [] : [`Authorization: Bearer ${token}`]),
    ])
  return { instance, recorded, ask }
}

/** Runs all of it in one minute of the clock: at the turn of one it waits for the next. */
async function withinOneMinute(seconds: number) {
  await until('the minute is young enough', () => 60_000 - (Date.now() % 60_000) > seconds * 1000, 90_000)
}

t.test('beyond its budget an address gets a 503 and no entry, and a working key its answer', async (t) => {
  const { instance, recorded, ask } = await begin(t)
  const caller = await makeCaller(instance)
  await withinOneMinute(30)
  for (let i = 0; i < perMinute; i++) expectError(t, await ask('192.0.2.1'), 'unauthorized')
  for (const token of [undefined, `lk_${'0'.repeat(38)}`, 'other_prefix']) {
    const answer = await ask('192.0.2.1', token)
    expectError(t, answer, 'service_unavailable')
    const retryAfterS = Number(answer.headers.get('retry-after'))
    const leftS = 60 - (Date.now() % 60_000) / 1000
    t.ok(
      retryAfterS >= leftS && retryAfterS <= leftS + 20,
      `${retryAfterS} s, the minute has ${leftS} s left`,
    )
  }
  t.equal((await ask('192.0.2.1', caller.token)).status, 200, 'a key that works is not concerned')
  expectError(t, await ask('192.0.2.2'), 'unauthorized')
  t.equal(await recorded('192.0.2.1'), perMinute)
  t.equal(await recorded('192.0.2.2'), 1)

  const metrics = await instance.service.metrics.registry.metrics()
  t.match(metrics, 'latchkey_refusals_over_budget_total 3')
  t.match(metrics, 'latchkey_requests_total{status="503"} 3')
  const lines = instance.log.filter(({ status }) => status === 503)
  t.ok(lines.length >= 1 && lines.length <= 3)
  t.match(lines[0], { reason: /address/, suppressed: 0, path: '/v1/verify' })
})

t.test(
  'a key that is revoked is refused within the budget, and a 503 beyond it, never admitted',
  async (t) => {
    const { instance, recorded, ask } = await begin(t)
    const caller = await makeCaller(instance)
    t.equal((await ask('192.0.2.1', caller.token)).status, 200)
    await instance.ask('DELETE', `/v1/keys/${caller.id}`, { token: caller.token })
    await withinOneMinute(30)
    const statuses = []
    for (let i = 0; i < perMinute + 2; i++) statuses.push((await ask('192.0.2.1', caller.token)).status)
    t.same(statuses, [401, 401, 401, 401, 401, 503, 503])
    t.equal(await recorded('192.0.2.1'), perMinute)
  },
)

t.test('the address is the one in the audit entry: a header of the client changes nothing', async (t) => {
  const { recorded, ask } = await begin(t, { TRUST_PROXY: 'false' })
  await withinOneMinute(30)
  const statuses = []
  for (let i = 0; i < perMinute + 2; i++) statuses.push((await ask(`192.0.2.${i}`)).status)
  t.same(statuses, [401, 401, 401, 401, 401, 503, 503])
  t.equal(await recorded('127.0.0.1'), perMinute)
})

t.test('addresses of one IPv6 /64 share a budget', async (t) => {
  const { ask } = await begin(t)
  await withinOneMinute(30)
  const statuses = []
  for (let i = 0; i < perMinute + 1; i++) statuses.push((await ask(`2001:db8::${i}`)).status)
  t.same(statuses, [401, 401, 401, 401, 401, 503])
  t.equal((await ask('2001:db8:0:1::1')).status, 401)
})
