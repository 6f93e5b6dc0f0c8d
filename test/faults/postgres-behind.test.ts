// Another Postgres has taken over behind the same address, and the connections to the old one stay open: nothing that the old one
// still says decides a request. Under load: postgres-failover.soak.test.ts.
import t from 'tap'
import { startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { type PrivatePostgres, startPrivatePostgres, startTcpProxy } from '../services/index.ts'
import { findBaseBackup, makeReadOnly, startStandby } from './postgres-standby.ts'
import { makeKeys, startWorld } from './postgres-world.ts'

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
  'a key created at the new primary is not refused as unknown because the old one lacks it',
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
    const refusals = new Set<number>()
    await until('refusals are recorded', async () => {
      const { status } = await instance.ask('GET', '/v1/verify')
      refusals.add(status)
      return status === 401
    })
    t.strictSame(
      [...refusals].filter((status) => status !== 503),
      [401],
      'what cannot be recorded yet is 503',
    )
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
