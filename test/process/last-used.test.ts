// `last_used_at`: at most a second behind in Postgres, and not behind at all in what a client reads.
import { setTimeout as pause } from 'node:timers/promises'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { makeCaller, makeKey, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { until } from './until.ts'

async function begin(t: Test) {
  const services = await useServices(t)
  const instance = await startInstance(t, services)
  const sql = postgres(services.databaseUrl, { max: 2, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  const stored = async (id: string): Promise<number | null> =>
    (await sql`select extract(epoch from last_used_at)::float8 as at from api_keys where id = ${id}`)[0]!.at
  return { services, instance, sql, stored }
}

const nowS = () => Math.floor(Date.now() / 1000)

t.test('a use is in Postgres within a second', async (t) => {
  const { instance, stored } = await begin(t)
  for (const delayMs of [0, 170, 340]) {
    const caller = await makeCaller(instance)
    await pause(delayMs) // another phase of the regular writing
    const usedMs = performance.now()
    const usedS = nowS()
    await instance.ask('GET', '/v1/verify', { token: caller.token })
    const at = await until('the use is written', () => stored(caller.id), 3000)
    t.ok(performance.now() - usedMs <= 1000, 'in time')
    t.ok(at >= usedS && at <= nowS(), 'as the second of the use')
  }
})

t.test('under steady use Postgres is never more than a second behind', async (t) => {
  const { instance, stored } = await begin(t)
  const { id, token } = await makeCaller(instance)
  const endMs = Date.now() + 3000
  let using = true
  const use = async () => {
    while (using) {
      await instance.ask('GET', '/v1/verify', { token })
      await pause(5)
    }
  }
  const used = use()
  await until('the first use is written', () => stored(id))
  let last = 0
  while (Date.now() < endMs) {
    // What was used a second before the question was asked must be in its answer.
    const dueS = Math.floor(Date.now() / 1000 - 1)
    const at = (await stored(id))!
    if (at < dueS) t.fail(`${dueS - at} s more than a second behind`)
    if (at < last) t.fail('it went back')
    last = at
    await pause(20)
  }
  using = false
  await used
  t.ok(last >= endMs / 1000 - 3, 'it moved')
})

t.test('reads show a use that is not yet in Postgres', async (t) => {
  const { instance, sql, stored } = await begin(t)
  const used = await makeCaller(instance)
  const reader = await makeKey(instance, { userId: used.userId })
  const byReader = { token: reader.token }
  await sql.begin(async (tx) => {
    // Nothing can be written of these keys, and everything can be read.
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

t.test('a key that was never used has none, and a refused one is not used by that', async (t) => {
  const { instance, stored } = await begin(t)
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
