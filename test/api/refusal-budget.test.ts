// A stranger cannot fill the disk: beyond the budget of its address a refusal is a 503 without an audit entry.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { expectError } from './expect-error.ts'
import { sendRaw } from './raw-http.ts'

const perMinute = 5
const services = await useServices(t)
const env = { REFUSALS_PER_ADDRESS_RPM: String(perMinute) }
const behindProxy = await startInstance(t, services, { ...env, TRUST_PROXY: '1' })
const sql = openDatabase(t, services.databaseUrl)

const ask = (from: string, token?: string, { port } = behindProxy) =>
  sendRaw(port, 'GET', '/v1/verify', [
    `X-Forwarded-For: ${from}`,
    ...(token === undefined ? [] : [`Authorization: Bearer ${token}`]),
  ])
const recorded = async (ip: string) =>
  (await sql`select request_id from audit_log where event = 'auth.refused' and ip = ${ip}`).length
const overBudget = [...Array(perMinute).fill(401), 503, 503]

/** The statuses of two requests more than the budget allows, all sent in one minute of the clock. */
async function spendBudget(send: (i: number) => ReturnType<typeof ask>) {
  await until('the minute is young', () => Date.now() % 60_000 < 50_000, 90_000)
  const statuses = []
  for (let i = 0; i < perMinute + 2; i++) statuses.push((await send(i)).status)
  return statuses
}

t.test(
  'beyond its budget an address gets a 503 and no audit entry, but a usable key still works',
  async (t) => {
    const caller = await makeCaller(behindProxy)
    t.same(await spendBudget(() => ask('192.0.2.1')), overBudget)
    const answer = await ask('192.0.2.1', `lk_${'0'.repeat(38)}`)
    expectError(t, answer, 'service_unavailable')
    const retryAfterS = Number(answer.headers.get('retry-after'))
    const leftS = 60 - (Date.now() % 60_000) / 1000
    t.ok(retryAfterS >= leftS && retryAfterS <= leftS + 20, `${retryAfterS} s, and ${leftS} s are left`)
    t.equal((await ask('192.0.2.1', caller.token)).status, 200)
    expectError(t, await ask('192.0.2.2'), 'unauthorized')
    t.equal(await recorded('192.0.2.1'), perMinute)
    t.equal(await recorded('192.0.2.2'), 1)

    const metrics = await behindProxy.service.metrics.registry.metrics()
    t.match(metrics, 'latchkey_refusals_over_budget_total 3')
    t.match(metrics, 'latchkey_requests_total{status="503"} 3')
    const lines = behindProxy.log.filter(({ status }) => status === 503)
    t.ok(lines.length >= 1 && lines.length <= 3)
    t.match(lines[0], { reason: 'too many refusals from 192.0.2.1', suppressed: 0, path: '/v1/verify' })
  },
)

t.test('beyond the budget a revoked key is a 503, never admitted', async (t) => {
  const { id, token } = await makeCaller(behindProxy)
  t.equal((await ask('192.0.2.3', token)).status, 200)
  await behindProxy.ask('DELETE', `/v1/keys/${id}`, { token })
  t.same(await spendBudget(() => ask('192.0.2.3', token)), overBudget)
  t.equal(await recorded('192.0.2.3'), perMinute)
})

t.test('addresses of one IPv6 /64 share a budget', async (t) => {
  t.same(await spendBudget((i) => ask(`2001:db8::${i}`)), overBudget)
  t.equal((await ask('2001:db8:0:1::1')).status, 401)
})

t.test('without a trusted proxy no header changes whose budget it is', async (t) => {
  const direct = await startInstance(t, services, env)
  t.same(await spendBudget((i) => ask(`192.0.2.${10 + i}`, undefined, direct)), overBudget)
  t.equal(await recorded('127.0.0.1'), perMinute)
})
