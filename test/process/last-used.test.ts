// `last_used_at`: written soon (last-used.soak.test.ts checks how soon), and always current in what
// a client reads.
import t from 'tap'
import { makeCaller, makeKey } from '../instance.ts'
import { begin } from './last-used.ts'
import { until } from './until.ts'

const { instance, sql, stored } = await begin(t)
const nowS = () => Math.floor(Date.now() / 1000)

t.test('a use is written, as the second of the use', async (t) => {
  const caller = await makeCaller(instance)
  const usedS = nowS()
  await instance.ask('GET', '/v1/verify', { token: caller.token })
  const at = await until('the use is written', () => stored(caller.id))
  t.ok(at >= usedS && at <= nowS())
})

t.test('reads show a use that is not yet in Postgres', async (t) => {
  const used = await makeCaller(instance)
  const reader = await makeKey(instance, { userId: used.userId })
  const byReader = { token: reader.token }
  await sql.begin(async (tx) => {
    // These keys can be read but not written.
    await tx`select from api_keys where user_id = ${used.userId} for update`
    const usedS = nowS()
    t.equal((await instance.ask('GET', '/v1/verify', { token: used.token })).status, 200)
    const isShown = (at: unknown) =>
      Number.isInteger(at) && (at as number) >= usedS && (at as number) <= nowS()
    const { body: one } = await instance.ask('GET', `/v1/keys/${used.id}`, byReader)
    t.ok(isShown(one.last_used_at), 'in a single key')
    const { body: list } = await instance.ask('GET', '/v1/keys', byReader)
    for (const key of list.data) t.ok(isShown(key.last_used_at), 'in a list, the reading key itself too')
    t.equal(await stored(used.id), null)
  })
  const at = await until('it is written once it can be', () => stored(used.id))
  t.ok(at <= nowS())
})

t.test('a key that was never used has none, and a refused use does not count', async (t) => {
  const caller = await makeCaller(instance)
  const idle = await makeKey(instance, { userId: caller.userId })
  const { body } = await instance.ask('GET', `/v1/keys/${idle.id}`, { token: caller.token })
  t.equal(body.last_used_at, null)
  await instance.ask('DELETE', `/v1/keys/${idle.id}`, { token: caller.token })
  t.equal((await instance.ask('GET', '/v1/verify', { token: idle.token })).status, 401)
  // The caller's own use, noted before and after it, has been written: so would this one have been.
  await instance.close()
  t.ok((await stored(caller.id))! > 0)
  t.equal(await stored(idle.id), null)
})
