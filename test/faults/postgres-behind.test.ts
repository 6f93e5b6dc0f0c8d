// Another Postgres takes over behind the same address, and the connections to the old one stay
// open: nothing that the old one still says decides a request. Under load:
// postgres-failover.soak.test.ts.
import t, { type Test } from 'tap'
import { makeKey, startInstance } from '../instance.ts'
import { until } from '../process/until.ts'
import { makeReadOnly, type Pair, startPair } from './postgres-standby.ts'

const pair = await startPair(t)
if (pair !== null) {
  const { instance, services, userId } = pair.world
  const verify = async (token?: string) =>
    (await instance.ask('GET', '/v1/verify', token === undefined ? {} : { token })).status

  /** The old primary stays up, read-only; gives it and an instance that knows only the new one. */
  async function failOver(t: Test, { primary, startStandby }: Pair, beforehand: () => Promise<unknown>) {
    const standby = await startStandby()
    const other = await startInstance(t, { ...services, databaseUrl: standby.url })
    await beforehand()
    const roleOf = async ({ service }: typeof other) =>
      (await service.stores.keys.findByHash(['00'.repeat(32)])).role
    t.strictSame([await roleOf(instance), await roleOf(other)], ['primary', 'standby'])
    await makeReadOnly(t, primary.url)
    await until('the old primary says so', async () => (await roleOf(instance)) === 'read_only')
    await standby.promote()
    pair!.primary = standby
    return { old: primary, other }
  }

  /** Everything answered until this status, without the 503s. */
  async function decidedUntil(wanted: number, token?: string): Promise<number[]> {
    const seen = new Set<number>()
    await until(`it is answered ${wanted}`, async () => {
      const status = await verify(token)
      seen.add(status)
      return status === wanted
    })
    return [...seen].filter((status) => status !== 503)
  }

  t.test('what was revoked at the new primary is refused, whatever the old one still says', async (t) => {
    const [manager, ...keys] = await pair.world.makeKeys(6)
    const { old, other } = await failOver(t, pair, async () => {
      for (const { token } of keys) t.equal(await verify(token), 200)
    })
    const revoked = await Promise.all(
      keys.map(async ({ id, token }) => {
        const revoke = () => other.ask('DELETE', `/v1/keys/${id}`, { token: manager!.token })
        await until('it is revoked', async () => (await revoke()).status === 200)
        return decidedUntil(401, token)
      }),
    )
    t.strictSame(
      revoked,
      keys.map(() => [401]),
      'after the answer no request is admitted with it',
    )
    await old.stop()
  })

  t.test('a key created at the new primary is not refused because the old one lacks it', async (t) => {
    const [used] = await pair.world.makeKeys(1)
    const { other } = await failOver(t, pair, async () =>
      t.equal(await verify(used!.token), 200, 'it looks keys up'),
    )
    // By then refusals go to the new one; keys may still be looked up at the old one.
    t.strictSame(await decidedUntil(401), [401], 'what cannot be recorded yet is 503')
    const { token } = await makeKey(other, { userId })
    t.strictSame(await decidedUntil(200, token), [200])
  })
}
