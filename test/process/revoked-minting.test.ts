// A key that is revoked while it creates another key mints nothing.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { makeKey, makeUser, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { lockWaitOf } from './held-at-start.ts'

const rounds = 40
const atOnce = 4

const services = await useServices(t)
const a = await startInstance(t, services)
const b = await startInstance(t, services)
const sql = openDatabase(t, services.databaseUrl, 3)
const minted = async (name: string) => (await sql`select id from api_keys where name = ${name}`).length

/** A user, the key that mints, and one to revoke it by. */
async function people() {
  const user = await makeUser(a)
  const manager = await makeKey(a, { userId: user.id })
  return { user, manager, key: await makeKey(a, { userId: user.id }) }
}

/** Two instances race; the creation is 201 with the key there, or the uniform 401 with nothing there. */
t.test(
  'a creation that races with the revocation of its key mints a key or is refused, never both',
  async (t) => {
    const outcomes = { created: 0, refused: 0 }
    const wrong: string[] = []
    let left = rounds
    let revocationMs = 0
    async function race(round: number) {
      const { manager, key } = await people()
      const name = `race ${round}`
      await b.ask('GET', '/v1/verify', { token: key.token })
      let revokedMs = Number.POSITIVE_INFINITY
      let sentMs = 0
      const revoke = async () => {
        const startMs = performance.now()
        await a.ask('DELETE', `/v1/keys/${key.id}`, { token: manager.token })
        revokedMs = performance.now()
        revocationMs = revokedMs - startMs
      }
      const create = async () => {
        // From well before the revocation to well after it, at the speed of this machine.
        await pause(((round % 8) / 5) * revocationMs)
        sentMs = performance.now()
        return b.ask('POST', '/v1/keys', { token: key.token, json: { name } })
      }
      const [{ status, body }] = await Promise.all([create(), revoke()])
      const rows = await minted(name)
      if (status === 201) outcomes.created++
      else outcomes.refused++
      if (status !== 201 && status !== 401) wrong.push(`answered ${status}`)
      if (rows !== (status === 201 ? 1 : 0)) wrong.push(`${status} with ${rows} keys made`)
      if (status === 201 && sentMs > revokedMs) wrong.push('made by a key that had been revoked')
      if (status === 401) {
        const [entry] = await a.service.stores.audit.find(body.error.request_id)
        if (entry?.reason !== 'revoked') wrong.push(`the stored reason is ${entry?.reason}`)
      }
    }
    const work = async () => {
      while (left-- > 0) await race(left)
    }
    await Promise.all(Array.from({ length: atOnce }, work))
    t.same(wrong, [])
    t.ok(outcomes.created > 0 && outcomes.refused > 0, `both happened: ${JSON.stringify(outcomes)}`)
  },
)

const creationWaits = () => lockWaitOf(sql, '%create_key%')

t.test(
  'a creation that was authenticated before the revocation and decided after it mints nothing',
  async (t) => {
    const { user, manager, key } = await people()
    let creation: ReturnType<typeof b.ask> | undefined
    await sql.begin(async (tx) => {
      // Where a creation stops before it decides: it locks its owner first.
      await tx`select from users where id = ${user.id} for update`
      creation = b.ask('POST', '/v1/keys', { token: key.token, json: { name: 'too late' } })
      await creationWaits()
      t.equal((await a.ask('DELETE', `/v1/keys/${key.id}`, { token: manager.token })).status, 200)
    })
    const { status, headers } = await creation!
    t.equal(status, 401)
    t.equal(headers.get('x-ratelimit-limit'), null, 'as any other 401')
    t.equal(await minted('too late'), 0)
  },
)

t.test(
  'a creation that was authenticated before its owner was deleted and decided after it mints nothing',
  async (t) => {
    const { user, key } = await people()
    let creation: ReturnType<typeof b.ask> | undefined
    await sql.begin(async (tx) => {
      await tx`update users set deleted_at = now() where id = ${user.id}`
      creation = b.ask('POST', '/v1/keys', { token: key.token, json: { name: 'too late' } })
      await creationWaits()
    })
    t.equal((await creation!).status, 401)
    t.equal(await minted('too late'), 0)
  },
)

t.test('a revocation that is decided after its own key was revoked is refused', async (t) => {
  const { manager, key } = await people()
  let revocation: ReturnType<typeof b.ask> | undefined
  await sql.begin(async (tx) => {
    await tx`update api_keys set revoked_at = now(), version = version + 1 where id = ${key.id}`
    revocation = b.ask('DELETE', `/v1/keys/${manager.id}`, { token: key.token })
    await lockWaitOf(sql, '%revoke_key%')
  })
  t.equal((await revocation!).status, 401)
  t.equal((await b.ask('GET', '/v1/verify', { token: manager.token })).status, 200)
})

for (const [what, method, path, json, statement] of [
  ['change', 'PATCH', '', { name: 'too late' }, '%change_key%'],
  ['rotation', 'POST', '/rotate', {}, '%rotate_key%'],
] as const)
  t.test(`a ${what} that is decided after its own key was revoked is the 401 of that key`, async (t) => {
    const { user, manager, key } = await people()
    let change: ReturnType<typeof b.ask> | undefined
    await sql.begin(async (tx) => {
      await tx`update api_keys set revoked_at = now(), version = version + 1 where id = ${key.id}`
      change = b.ask(method, `/v1/keys/${manager.id}${path}`, { token: key.token, json })
      await lockWaitOf(sql, statement)
    })
    const { status, body } = await change!
    t.match({ status, body }, { status: 401, body: { error: { code: 'unauthorized' } } })
    t.match(await a.service.stores.audit.find(body.error.request_id), [
      { event: 'auth.refused', reason: 'revoked', key_id: key.id, user_id: user.id },
    ])
    t.match(await a.service.stores.keys.get(manager.id, user.id), { version: 1, name: manager.name })
  })

t.test('a revocation does not answer while a creation by that key is being written', async (t) => {
  const { manager, key } = await people()
  // Each insert into api_keys waits for a lock that the test holds.
  await sql.unsafe(`
    create function wait_for_test() returns trigger language plpgsql as
      $$ begin perform pg_advisory_xact_lock(42); return new; end $$;
    create trigger wait_for_test before insert on api_keys for each row execute function wait_for_test();`)
  const order: string[] = []
  let creation: Promise<number> | undefined
  let revocation: Promise<number> | undefined
  await sql.begin(async (tx) => {
    await tx`select pg_advisory_xact_lock(42)`
    creation = b
      .ask('POST', '/v1/keys', { token: key.token, json: { name: 'in time' } })
      .then(({ status }) => {
        order.push('creation')
        return status
      })
    await creationWaits()
    revocation = a.ask('DELETE', `/v1/keys/${key.id}`, { token: manager.token }).then(({ status }) => {
      order.push('revocation')
      return status
    })
    // Time for a wrong answer to come.
    await pause(200)
    t.same(order, [])
  })
  t.equal(await creation, 201)
  t.equal(await revocation, 200)
  t.equal(await minted('in time'), 1)
})
