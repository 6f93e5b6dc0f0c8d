// Another Postgres takes over behind the same address: the service finds it by itself, also where its connections to the old
// one stay open. (That it trusts nothing the old one still says: postgres-behind.test.ts.)
import t, { type Test } from 'tap'
import { type PrivatePostgres, startPrivatePostgres, startTcpProxy } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { everything, numbersOf, type Outcome, onlyCached, underLoad } from './postgres-fault.ts'
import { findBaseBackup, makeReadOnly, startStandby } from './postgres-standby.ts'
import { connectTo, startWorld } from './postgres-world.ts'

const binaries = await findBaseBackup()
if (!binaries) {
  t.pass('failover to a standby', { skip: 'there is no pg_basebackup on this machine' })
  process.exit()
}

let primary: PrivatePostgres = await startPrivatePostgres(t)
/** What a proxy in front of Postgres, or its name in the DNS, is: an address that comes to lead elsewhere. */
const address = await startTcpProxy(t, primary.url)
const world = await startWorld(t, address.url)
/** A standby outlives its test: it may be the primary of the next one. */
const nextStandby = () => startStandby(t, binaries, primary)
const rounds = scaled(1, 5)
const forMs = scaled(1000, 5000)

/** Of a server that reads on: what only reads may go on, what writes may not. */
const readOnly = {
  ...everything,
  writing: 'stops',
  unknown: 'stops',
  listing: 'falters',
  fresh: 'falters',
} as const

/** Each 401 that a client was given is in the log of whoever is the primary now. */
async function noRefusalLost(t: Test, { samples }: Outcome) {
  const ids = samples.unknown
    .filter(({ status }) => status === 401)
    .map(({ headers }) => String(headers['x-request-id']))
  const sql = connectTo(t, primary.url)
  const [found] = await sql`
    select count(*)::int as entries, count(distinct request_id)::int as requests
    from audit_log where request_id = any (${ids})`
  t.same(found, { entries: ids.length, requests: ids.length }, `${ids.length} refusals, each once`)
}

t.test('the primary killed, its standby promoted: nothing is lost, and the service finds it', async (t) => {
  const outcomes: Outcome[] = []
  for (let round = 0; round < rounds; round++) {
    const standby = await nextStandby()
    const outcome = await underLoad(t, world, {
      away: () => primary.kill(),
      async back() {
        await standby.promote()
        address.retarget(standby.url)
      },
      forMs,
      fates: onlyCached,
    })
    primary = standby
    await noRefusalLost(t, outcome)
    outcomes.push(outcome)
  }
  recordFigure(t, 'postgres-failover', numbersOf(outcomes))
})

t.test(
  'new connections led to a standby for a while: writes are 503, and again done soon after',
  async (t) => {
    const standby = await nextStandby()
    const outcomes: Outcome[] = []
    for (let round = 0; round < rounds; round++) {
      const outcome = await underLoad(t, world, {
        async away() {
          address.retarget(standby.url)
          address.cut()
        },
        // The connections to the standby stay open.
        back: async () => address.retarget(primary.url),
        forMs,
        fates: readOnly,
      })
      await noRefusalLost(t, outcome)
      outcomes.push(outcome)
    }
    recordFigure(t, 'postgres-standby', numbersOf(outcomes))
    await standby.retire()
  },
)

t.test(
  'the primary demoted to read-only, its connections open: writes are 503 until the new one is led to',
  async (t) => {
    const outcomes: Outcome[] = []
    for (let round = 0; round < rounds; round++) {
      const standby = await nextStandby()
      const outcome = await underLoad(t, world, {
        away: () => makeReadOnly(t, primary.url),
        async back() {
          await standby.promote()
          address.retarget(standby.url)
        },
        forMs,
        fates: readOnly,
      })
      await primary.stop()
      primary = standby
      await noRefusalLost(t, outcome)
      outcomes.push(outcome)
    }
    recordFigure(t, 'postgres-read-only', numbersOf(outcomes))
  },
)
