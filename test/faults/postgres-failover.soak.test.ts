// Another Postgres takes over behind the same address: the service finds it by itself, also where its connections to the old
// one stay open, and believes nothing that the old one still says.
import t, { type Test } from 'tap'
import { startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { type PrivatePostgres, startPrivatePostgres, startTcpProxy } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'
import { everything, inWords, type Outcome, onlyCached, underLoad } from './postgres-fault.ts'
import { findBaseBackup, startStandby } from './postgres-standby.ts'
import { connectTo, makeKeys, startWorld } from './postgres-world.ts'

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
  t.comment(inWords(outcomes))
  recordFigure('postgres-failover', inWords(outcomes))
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
    t.comment(inWords(outcomes))
    recordFigure('postgres-standby', inWords(outcomes))
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
    t.comment(inWords(outcomes))
    recordFigure('postgres-read-only', inWords(outcomes))
  },
)

t.test('what was revoked at the new primary is refused, whatever the old one still says', async (t) => {
  const { instance, services, userId } = world
  const standby = await nextStandby()
  const other = await startInstance(t, { ...services, databaseUrl: standby.url })
  const [manager, ...keys] = await makeKeys(instance, userId, 6)
  const verify = ({ token }: { token: string }) => instance.ask('GET', '/v1/verify', { token })
  for (const key of keys) t.equal((await verify(key)).status, 200)
  await makeReadOnly(t, primary.url)
  await standby.promote()
  address.retarget(standby.url)

  const refused = keys.map(async (key) => {
    const path = `/v1/keys/${key.id}`
    await until(
      'it is revoked',
      async () => (await other.ask('DELETE', path, { token: manager!.token })).status === 200,
    )
    const statuses = new Set<number>()
    await until('it is refused', async () => {
      const { status } = await verify(key)
      statuses.add(status)
      return status === 401
    })
    return [...statuses].filter((status) => status !== 503)
  })
  t.strictSame(
    await Promise.all(refused),
    keys.map(() => [401]),
    'after the answer nobody is let in by it',
  )
  await primary.stop()
  primary = standby
})

t.test(
  'what was made at the new primary is not taken for unknown because the old one lacks it',
  async (t) => {
    const { instance, services, userId } = world
    const standby = await nextStandby()
    const other = await startInstance(t, { ...services, databaseUrl: standby.url })
    const [used] = await makeKeys(instance, userId, 1)
    t.equal((await instance.ask('GET', '/v1/verify', { token: used!.token })).status, 200, 'it looks keys up')
    await makeReadOnly(t, primary.url)
    await standby.promote()
    address.retarget(standby.url)
    // By then refusals go to the new one; keys may still be looked up at the old one.
    await until('refusals are recorded', async () => (await instance.ask('GET', '/v1/verify')).status === 401)
    const [made] = await makeKeys(other, userId, 1)
    const seen = new Set<number>()
    await until('it is known', async () => {
      const { status } = await instance.ask('GET', '/v1/verify', { token: made!.token })
      seen.add(status)
      return status === 200
    })
    t.notOk(seen.has(401), `answered ${[...seen]}`)
  },
)

/** As an operator, or a provider whose disk is full, does it: whoever is connected stays so. */
async function makeReadOnly(t: Test, url: string): Promise<void> {
  const sql = connectTo(t, url)
  await sql`alter system set default_transaction_read_only = on`
  await sql`select pg_reload_conf()`
  await until(
    'it takes no writes',
    async () => (await sql`show transaction_read_only`)[0]!.transaction_read_only === 'on',
  )
}
