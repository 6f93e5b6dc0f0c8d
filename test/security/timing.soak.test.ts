// How long an answer takes tells nothing either. An unknown key, a revoked, an expired and a deleted owner's are compared on one
// connection to one process; so are an absent id, a mistyped one and a stranger's. To measure on a machine of yours, with nothing
// else running on it:
//
//   npx tap run --jobs=1 --test-env=SOAK=1 --timeout=3600 test/security/timing.soak.test.ts
//
// It prints what it measured and how small a difference it could have seen.
import t, { type Test } from 'tap'
import { recordFigure } from '../soak.ts'
import { asTable, type Comparison, compare, detectableUs, type Variants } from './timing-comparison.ts'
import { openTimed, requestBytes } from './timing-connection.ts'
import { absentId, startCompared, unknownToken } from './timing-service.ts'
import { surely } from './timing-statistics.ts'

/** On loopback. Over a network it drowns: the differences of one machine's answers are a multiple of it. */
const boundUs = 20

const { port, caller, strangersId, ...refused } = await startCompared(t)

function expectAlike(t: Test, compared: Comparison[]) {
  for (const one of compared.slice(1)) {
    t.ok(Math.abs(one.us) <= boundUs, `${one.variant} is at most ${boundUs} µs apart`)
  }
}

async function measured(t: Test, title: string, variants: Variants, status: number, rounds: number) {
  const compared = await compare(await openTimed(t, port), variants, { rounds, status })
  for (const line of asTable(title, compared).split('\n')) t.comment(line)
  return compared
}

const largest = (compared: Comparison[]) => Math.max(...compared.slice(2).map(({ us }) => Math.abs(us)))

t.test('a refusal takes as long for a known key as for an unknown one', async (t) => {
  const get = (token: string) => requestBytes('GET', '/v1/verify', token)
  const variants = {
    unknown: get(unknownToken()),
    'another unknown': get(unknownToken()),
    revoked: get(refused.revoked),
    expired: get(refused.expired),
    'owner deleted': get(refused.ownerDeleted),
    // Told apart without asking Postgres: the tool must see that, or it sees nothing.
    'wrong prefix': get(`x${unknownToken()}`),
  }
  const compared = await measured(t, '401 of GET /v1/verify', variants, 401, 20_000)
  expectAlike(t, compared.slice(0, -1))
  t.ok(surely(compared.at(-1)!) > boundUs, 'a refusal without a look-up is seen to be quicker')
  recordFigure(t, 'timing-401', {
    us: largest(compared.slice(0, -1)),
    rounds: compared[0]!.rounds,
    detectableUs: detectableUs(compared),
  })
})

t.test("a miss takes as long for a stranger's id as for an absent one", async (t) => {
  const comparisons: Record<string, Comparison[]> = {}
  for (const [method, body] of [['GET'], ['PATCH', '{"name":"taken"}'], ['DELETE']] as const) {
    const ask = (id: string) => requestBytes(method, `/v1/keys/${id}`, caller.token, body)
    const variants = {
      absent: ask(absentId()),
      'another absent': ask(absentId()),
      mistyped: ask(caller.id.replace('apk_', 'akp_')),
      "a stranger's": ask(strangersId),
    }
    const title = `404 of ${method} /v1/keys/{id}`
    const compared = await measured(t, title, variants, 404, 20_000)
    expectAlike(t, compared)
    comparisons[method] = compared
  }
  const { GET, PATCH, DELETE } = comparisons
  recordFigure(t, 'timing-404', {
    getUs: largest(GET!),
    patchUs: largest(PATCH!),
    deleteUs: largest(DELETE!),
    rounds: GET![0]!.rounds,
    detectableUs: Math.max(...Object.values(comparisons).map(detectableUs)),
  })
})
