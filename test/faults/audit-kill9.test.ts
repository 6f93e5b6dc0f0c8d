/**
 * No refusal unrecorded: the reason behind any request id that a client was given can be found,
 * although the service and Postgres are killed (kill -9) again and again. This Postgres does not
 * wait for its disk (fsync is off): what a process has written outlives the process all the same.
 */
import { request } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { externalEnv, serveLatchkey } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { openDatabase, startPrivatePostgres, useServices } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { chanceOf } from './chance.ts'
import { expectRecorded } from './postgres-fault.ts'

const kills = scaled(2, 100)
const clients = 40
/** After refusals arrive: from their first commit to the fullest batches. */
const killWithinMs = 300

/** One for each reason. */
const refused = (token: string): Record<string, string>[] => [
  {},
  { authorization: 'Basic eDp5' },
  { authorization: 'Bearer nothing_of_ours' },
  { authorization: `Bearer ${token.slice(0, -1)}` },
  { authorization: `Bearer ${token}` },
]

/**
 * The request id in the head of a 401: the client has it by then, whatever becomes of the rest.
 * Null if there was none.
 */
function refusedId(port: number, headers: Record<string, string>): Promise<string | null> {
  return new Promise((resolve) => {
    const sent = request({ port, host: '127.0.0.1', path: '/v1/verify', headers }, (response) => {
      response.on('error', () => {}).resume()
      resolve(response.statusCode === 401 ? String(response.headers['x-request-id']) : null)
    })
    sent.on('error', () => resolve(null)).end()
  })
}

/**
 * Clients that send one request after the other to the service that is there, and the ids they were
 * given.
 */
function startFlood(t: Test, port: () => number, kinds: Record<string, string>[]) {
  const given: string[] = []
  let isOver = false
  const flood = Array.from({ length: clients }, async (_, i) => {
    while (!isOver) {
      const id = await refusedId(port(), kinds[i % kinds.length]!)
      if (id !== null) given.push(id)
      // Nothing is there, or it cannot record: a client that hammered it would only take its
      // processor.
      else await pause(20)
    }
  })
  const stop = async () => {
    isOver = true
    await Promise.all(flood)
  }
  t.teardown(stop)
  return { given, stop }
}

t.test(
  'after kill -9 of the service or of Postgres every request id of a 401 is in the audit log, once',
  async (t) => {
    const chance = chanceOf(t)
    const server = await startPrivatePostgres(t)
    const services = { ...(await useServices(t)), databaseUrl: server.url }
    const instance = await startInstance(t, services)
    const { id, token } = await makeCaller(instance)
    await instance.ask('DELETE', `/v1/keys/${id}`, { token })
    await instance.close()

    const start = () => serveLatchkey(t, externalEnv(services))
    let service = await start()
    const { given, stop } = startFlood(t, () => service.port, refused(token))
    const untilMore = () => {
      const enough = given.length + clients
      return until('refusals arrive', () => given.length > enough)
    }
    let missing = 0
    let checked = 0
    const check = async () => {
      const ids = given.slice(checked)
      checked += ids.length
      t.ok(ids.length > 0)
      missing += await expectRecorded(t, server.url, ids)
    }
    for (let round = 0; round < kills; round++) {
      const next = round % 2 === 0 ? await start() : null
      await untilMore()
      await chance.pause(0, killWithinMs)
      if (next) {
        const victim = service
        victim.kill('SIGKILL')
        service = next
        t.equal((await victim.ended).signal, 'SIGKILL')
      } else {
        await server.kill()
        await server.restart()
      }
      await check()
    }
    await untilMore()
    await stop()
    await check()
    t.equal(new Set(given).size, given.length, 'no id was given twice')

    const sql = openDatabase(t, server.url)
    const twice = await sql`
    select request_id from audit_log where event = 'auth.refused' group by 1 having count(*) > 1`
    t.strictSame([...twice], [], 'nor is one recorded twice whose client got no answer')
    const reasons = await sql`select distinct reason from audit_log where reason is not null order by 1`
    t.same(
      reasons.map(({ reason }) => reason),
      ['missing_header', 'revoked', 'unknown_key', 'wrong_prefix', 'wrong_scheme'],
    )
    recordFigure(t, 'audit-kill9', { kills, given: given.length, missing, twice: twice.length })
  },
)
