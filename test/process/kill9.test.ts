// No refusal unrecorded: whoever was given a request id can have its reason found, also after the process was killed.
import { request } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { externalEnv, type Serving, serveLatchkey } from './latchkey.ts'
import { until } from './until.ts'

const kills = 10
const clients = 40

/** Refused for one reason each. */
const refused = (token: string): Record<string, string>[] => [
  {},
  { authorization: 'Basic eDp5' },
  { authorization: 'Bearer nothing_of_ours' },
  { authorization: `Bearer ${token.slice(0, -1)}` },
  { authorization: `Bearer ${token}` },
]

/** The request id of a 401's head: given to the client by then, whatever becomes of the rest. Null if none came. */
function refusedId({ port }: Serving, headers: Record<string, string>): Promise<string | null> {
  return new Promise((resolve) => {
    const sent = request({ port, host: '127.0.0.1', path: '/v1/verify', headers }, (response) => {
      response.on('error', () => {}).resume()
      resolve(response.statusCode === 401 ? String(response.headers['x-request-id']) : null)
    })
    sent.on('error', () => resolve(null)).end()
  })
}

async function floodAndKill(t: Test, service: Serving, token: string, afterMs: number): Promise<string[]> {
  const ids: string[] = []
  let killed = false
  const kinds = refused(token)
  const flood = Array.from({ length: clients }, async (_, i) => {
    while (!killed) {
      const id = await refusedId(service, kinds[i % kinds.length]!)
      if (id !== null) ids.push(id)
    }
  })
  await until('refusals arrive', () => ids.length > clients)
  await pause(afterMs)
  service.kill('SIGKILL')
  void service.ended.then(() => {
    killed = true
  })
  await Promise.all(flood)
  t.equal((await service.ended).signal, 'SIGKILL')
  return ids
}

t.test(
  'after kill -9 under a flood every request id of a 401 is in the audit log exactly once, ten times over',
  async (t) => {
    const services = await useServices(t)
    const instance = await startInstance(t, services)
    const caller = await makeCaller(instance)
    await instance.ask('DELETE', `/v1/keys/${caller.id}`, { token: caller.token })
    const sql = postgres(services.databaseUrl, { max: 1, onnotice: () => {} })
    t.teardown(() => sql.end({ timeout: 1 }))

    let next = serveLatchkey(t, externalEnv(services))
    for (let round = 0; round < kills; round++) {
      const service = await next
      // Starts while this one is flooded and killed.
      if (round + 1 < kills) next = serveLatchkey(t, externalEnv(services))
      next.catch(() => {}) // told where it is waited for
      const ids = await floodAndKill(t, service, caller.token, round * 7)
      const [found] = await sql`
      select count(*)::int as entries, count(distinct request_id)::int as requests
      from audit_log where request_id = any (${ids})`
      t.ok(ids.length > clients)
      t.equal(new Set(ids).size, ids.length, 'no id was given twice')
      t.same(found, { entries: ids.length, requests: ids.length }, `${ids.length} refusals, each once`)
    }
    const reasons = await sql`select distinct reason from audit_log where reason is not null order by 1`
    t.same(
      reasons.map(({ reason }) => reason),
      ['missing_header', 'revoked', 'unknown_key', 'wrong_prefix', 'wrong_scheme'],
    )
  },
)
