// How long a response takes reveals nothing either: for an unknown, a revoked, an expired and a
// deleted owner's key, and for an absent, a mistyped and a stranger's id. All on one connection to
// one process. Needs a machine that does nothing else:
//
//   npx tap run --jobs=1 --test-env=SOAK=1 --timeout=3600 test/security/timing.soak.test.ts
//
// It prints what it measured, and how small a difference it could have seen.
import t, { type Test } from 'tap'
import { newId } from '../../src/rules/id.ts'
import { tokenFormat } from '../../src/rules/token.ts'
import { deleteUser, makeCaller, startInstance } from '../instance.ts'
import { externalEnv, serveLatchkey } from '../process/latchkey.ts'
import { openDatabase, startPrivatePostgres, useServices } from '../services/index.ts'
import { recordFigure } from '../soak.ts'
import { json, lengthOf, request, verify } from './requests.ts'
import { type Difference, differences } from './timing-statistics.ts'
import { openWire } from './wire.ts'

/** On loopback. A network would hide it. */
const boundUs = 20
const rounds = 20_000
/** Not measured: the first responses come from code that is not compiled yet. */
const warmUpRounds = rounds / 10
/** Enough for an index of several levels, and for the plans of a database in use. */
const others = { users: 2000, keys: 20_000 }

const services = { ...(await useServices(t)), databaseUrl: (await startPrivatePostgres(t)).url }
const instance = await startInstance(t, services)
const caller = await makeCaller(instance, { rateLimitRpm: 1_000_000_000 })
const stranger = await makeCaller(instance)
const revoked = await makeCaller(instance)
await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token: revoked.token })
const expired = await makeCaller(instance, { expiresAt: 1_000_000_000 })
const ownerless = await makeCaller(instance)
await deleteUser(instance, ownerless.userId)
await instance.close()
const sql = openDatabase(t, services.databaseUrl)
await sql`
  insert into users (id, name)
  select 'usr_' || md5(n::text), 'somebody' from generate_series(1, ${others.users}::int) n`
await sql`
  insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix)
  select 'apk_' || md5(n::text), 'usr_' || md5((n % ${others.users}::int + 1)::text), 'a key', sha256(n::text::bytea), 'x', 'lk_0000000'
  from generate_series(1, ${others.keys}::int) n`
// Otherwise Postgres does it at some moment of the measurement, and changes its plans.
await sql`vacuum analyze`
const { port } = await serveLatchkey(t, externalEnv(services))

/**
 * In rounds: each request once a round, in a random order. The first is what the others are
 * compared with, the second like it.
 */
async function measure(t: Test, title: string, requests: Record<string, string>, status: number) {
  const wire = openWire(port)
  t.teardown(() => wire.socket.destroy())
  const all = Object.values(requests)
  const series = all.map(() => new Float64Array(rounds))
  for (let round = -warmUpRounds; round < rounds; round++) {
    for (const i of shuffled(all.length)) {
      const sentMs = performance.now()
      const answer = await wire.ask(all[i]!)
      if (answer.status !== status) throw new Error(`${answer.status} instead of ${status}: ${answer.raw}`)
      if (round >= 0) series[i]![round] = (answer.atMs - sentMs) * 1000
    }
  }
  const found = differences(series)
  const control = found[1]!
  /**
   * The smallest difference that could have been seen: half the width of the interval of two of one
   * kind.
   */
  const detectableUs = (control.highUs - control.lowUs) / 2
  t.comment(`${title}, ${rounds} rounds: differences of ${detectableUs.toFixed(1)} µs could have been seen`)
  for (const [i, what] of Object.keys(requests).entries()) {
    const { medianUs, us, lowUs, highUs } = found[i]!
    const [median, difference, low, high] = [medianUs, us, lowUs, highUs].map((n) => n.toFixed(1))
    t.comment(`${what}: median ${median} µs, difference ${difference} µs, 95 % of it ${low} to ${high} µs`)
  }
  return { found, detectableUs }
}

function shuffled(length: number): number[] {
  const order = Array.from({ length }, (_, i) => i)
  for (let i = length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1))
    ;[order[i], order[j]] = [order[j]!, order[i]!]
  }
  return order
}

function expectAlike(t: Test, found: Difference[]): number {
  for (const { us } of found.slice(1)) t.ok(Math.abs(us) <= boundUs, `${us} µs is at most ${boundUs} µs`)
  return Math.max(...found.slice(2).map(({ us }) => Math.abs(us)))
}

t.test('a refusal takes as long for a known key as for an unknown one', async (t) => {
  const requests = {
    unknown: verify(tokenFormat('lk').mint()),
    'another unknown': verify(tokenFormat('lk').mint()),
    revoked: verify(revoked.token),
    expired: verify(expired.token),
    'owner deleted': verify(ownerless.token),
    // Refused without asking Postgres. If that is not seen, nothing is.
    'wrong prefix': verify(`x${tokenFormat('lk').mint()}`),
  }
  const { found, detectableUs } = await measure(t, '401 of GET /v1/verify', requests, 401)
  const us = expectAlike(t, found.slice(0, -1))
  const { lowUs, highUs } = found.at(-1)!
  t.ok(Math.max(lowUs, -highUs) > boundUs, 'a refusal without a look-up is seen to be quicker')
  recordFigure(t, 'timing-401', { us, rounds, detectableUs })
})

t.test("a miss takes as long for a stranger's id as for an absent one", async (t) => {
  const measured: Record<string, { us: number; detectableUs: number }> = {}
  for (const [method, body] of [['GET'], ['PATCH', '{"name":"taken"}'], ['DELETE']] as const) {
    const framing = body === undefined ? [] : [json, lengthOf(body)]
    const ask = (id: string) => request(method, `/v1/keys/${id}`, caller.token, ...framing) + (body ?? '')
    const requests = {
      absent: ask(newId('apk_')),
      'another absent': ask(newId('apk_')),
      mistyped: ask(caller.id.replace('apk_', 'akp_')),
      "a stranger's": ask(stranger.id),
    }
    const { found, detectableUs } = await measure(t, `404 of ${method} /v1/keys/{id}`, requests, 404)
    measured[method] = { us: expectAlike(t, found), detectableUs }
  }
  const { GET, PATCH, DELETE } = measured
  recordFigure(t, 'timing-404', {
    getUs: GET!.us,
    patchUs: PATCH!.us,
    deleteUs: DELETE!.us,
    rounds,
    detectableUs: Math.max(...Object.values(measured).map(({ detectableUs }) => detectableUs)),
  })
})
