/**
 * No refusal unrecorded: whoever was given a request id can have its reason found, although the service and Postgres are
 * killed (kill -9) again and again. The Postgres here does not wait for its disk (fsync is off): what a process has written
 * outlives the process all the same, and only the machine's end would tell the difference.
 */
import { randomInt } from 'node:crypto'
import { request } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { externalEnv, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { startPrivatePostgres, useServices } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'

const kills = scaled(4, 100)
const clients = 40
/** After refusals arrive: from their first commit to the fullest batches. */
const killWithinMs = 300

/** Refused for one reason each. */
const refused = (token: string): Record<string, string>[] => [
  {},
  { authorization: 'Basic eDp5' },
  { authorization: 'Bearer nothing_of_ours' },
  { authorization: `Bearer ${token.slice(0, -1)}` },
  { authorization: `Bearer ${token}` },
]

/** The request id of a 401's head: given to the client by then, whatever becomes of the rest. Null if none came. */
function refusedId(port: number, headers: Record<string, string>): Promise<string | null> {
  return new Promise((resolve) => {
    const sent = request({ port, host: '127.0.0.1', path: '/v1/verify', headers }, (response) => {
      response.on('error', () => {}).resume()
      resolve(response.statusCode === 401 ? String(response.headers['x-request-id']) : null)
    })
    sent.on('error', () => resolve(null)).end()
  })
}

/** Clients that ask whatever service is there, one request after the other; and the ids they were given. */
function startFlood(t: Test, port: () => number, kinds: Record<string, string>[]) {
  let given: string[] = []
  let over = false
  const flood = Array.from({ length: clients }, async (_, i) => {
    while (!over) {
      const id = await refusedId(port(), kinds[i % kinds.length]!)
      if (id !== null) given.push(id)
    }
  })
  const stop = async () => {
    over = true
    await Promise.all(flood)
  }
  t.teardown(stop)
  return {
    count: () => given.length,
    take() {
      const taken = given
      given = []
      return taken
    },
    stop,
  }
}

/** 0 to 1, the same again for the same seed (Lehmer's generator). */
function randomFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 48_271) % 2_147_483_647
    return state / 2_147_483_647
  }
}

t.test(
  'after kill -9 of the service or of Postgres under a flood every request id of a 401 is in the audit log, once',
  async (t) => {
    const seed = Number(process.env.SEED ?? randomInt(1, 2_147_483_647))
    t.comment(`SEED=${seed}`)
    const random = randomFrom(seed)
    const server = await startPrivatePostgres(t)
    const services = { ...(await useServices(t)), databaseUrl: server.url }
    const instance = await startInstance(t, services)
    const { id, token } = await makeCaller(instance)
    await instance.ask('DELETE', `/v1/keys/${id}`, { token })
    await instance.close()

    const start = () => serveLatchkey(t, externalEnv(services))
    let service: Serving = await start()
    const flood = startFlood(t, () => service.port, refused(token))
    const seen = new Set<string>()
    let missing = 0
    let killed = 0

    for (let round = 0; round < kills; round++) {
      const next = round % 2 === 0 ? await start() : null
      const before = flood.count()
      await until('refusals arrive', () => flood.count() > before + clients)
      await pause(random() * killWithinMs)
      if (next) {
        const victim = service
        victim.kill('SIGKILL')
        service = next
        t.equal((await victim.ended).signal, 'SIGKILL')
      } else {
        await server.kill()
        await server.restart()
      }
      killed++
      missing += await expectRecorded(t, server.url, flood.take(), seen)
    }
    await until('refusals arrive after the last one too', () => flood.count() > clients)
    await flood.stop()
    missing += await expectRecorded(t, server.url, flood.take(), seen)
    const sql = postgres(server.url, { max: 1 })
    t.teardown(() => sql.end({ timeout: 1 }))
    const twice = await sql`
      select request_id from audit_log where event = 'auth.refused' group by 1 having count(*) > 1`
    t.strictSame([...twice], [], 'nor is any there twice whose client was not answered')
    recordFigure(t, 'audit-kill9', { kills: killed, given: seen.size, missing, twice: twice.length })
    const reasons = await sql`select distinct reason from audit_log where reason is not null order by 1`
    t.same(
      reasons.map(({ reason }) => reason),
      ['missing_header', 'revoked', 'unknown_key', 'wrong_prefix', 'wrong_scheme'],
    )
  },
)

/** How many are missing. By a connection of its own: this Postgres may have been killed since the last time. */
async function expectRecorded(t: Test, url: string, ids: string[], seen: Set<string>): Promise<number> {
  const sql = postgres(url, { max: 1 })
  const [found] = await sql`
    select count(*)::int as entries, count(distinct request_id)::int as requests
    from audit_log where request_id = any (${ids})`
  await sql.end()
  t.ok(ids.length > 0)
  t.same(found, { entries: ids.length, requests: ids.length }, `${ids.length} refusals, each once`)
  const before = seen.size
  for (const id of ids) seen.add(id)
  t.equal(seen.size, before + ids.length, 'no id was given twice')
  return ids.length - found!.requests
}
