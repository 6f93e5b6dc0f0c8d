// A committed change is always published, also when its answer came too late for whoever asked for it.
import t, { type Test } from 'tap'
import { createKeyStore } from '../../src/postgres/keys.ts'
import { createPool } from '../../src/postgres/pool.ts'
import { createUserStore } from '../../src/postgres/users.ts'
import type { KeyVersion } from '../../src/stores.ts'
import { until } from '../process/until.ts'
import { startTcpProxy, useServices } from '../services/index.ts'
import { actor, newKeyOf, openStores } from './open-stores.ts'

const stores = await openStores(t, await useServices(t))
const { sql, makeUser, makeKey } = stores

/** Stores with few, slow or impatient connections, and what they publish; `held`: a publication ends when it does. */
function open(t: Test, { url = stores.url, timeoutMs = 10_000, held = Promise.resolve() } = {}) {
  const published: KeyVersion[][] = []
  const pool = createPool({ url, purpose: 'publication', max: 1, timeoutMs })
  t.teardown(() => pool.close())
  const publish = (versions: KeyVersion[]) => {
    published.push(versions)
    return held
  }
  const pools = { lookups: pool, management: pool, background: pool, operator: pool }
  const keys = createKeyStore(pools, { keysPerUserMax: 100, publish })
  return { pool, published, keys, users: createUserStore(pool, publish) }
}

async function madeKey() {
  const user = await makeUser()
  return makeKey(user.id)
}

t.test('a change, a revocation and a deletion are answered once they are published', async (t) => {
  const { id, userId } = await madeKey()
  const changes = {
    change: ({ keys }: ReturnType<typeof open>) => keys.change(id, userId, { rateLimitRpm: 7 }, actor()),
    revocation: ({ keys }: ReturnType<typeof open>) => keys.revoke(id, userId, actor()),
    'revocation of a revoked key': ({ keys }: ReturnType<typeof open>) => keys.revoke(id, null, actor()),
  }
  for (const [name, change] of Object.entries(changes)) {
    let publish = () => {}
    const held = new Promise<void>((resolve) => {
      publish = resolve
    })
    const store = open(t, { held })
    let answered = false
    const answer = change(store).finally(() => {
      answered = true
    })
    await until('the change is published', () => store.published.length === 1)
    await store.pool.run((sql) => sql`select 1`)
    t.equal(answered, false, `${name}: not before, and its connection is free meanwhile`)
    publish()
    t.match(await answer, { ok: true, key: { id } })
    const version = name === 'change' ? 2 : 3
    t.strictSame(store.published, [[{ keyId: id, version }]])
  }
})

t.test('a deletion of a user publishes every key that could be in use', async (t) => {
  const { id, userId } = await madeKey()
  const { users, published } = open(t)
  t.match(await users.remove(userId, actor()), { id: userId, deleted_at: Number })
  t.strictSame(published, [[{ keyId: id, version: 2 }]])
})

t.test('what changes nothing publishes nothing', async (t) => {
  const { id, userId } = await madeKey()
  const { keys, users, published } = open(t)
  await keys.change('apk_0', userId, { name: 'x' }, actor())
  await keys.change(id, userId, { expiresAt: 1 }, actor())
  await keys.revoke('apk_0', userId, actor())
  await keys.create(newKeyOf(userId).key, actor())
  await users.remove('usr_0', actor())
  t.strictSame(published, [])
})

t.test('a change that commits after the deadline is published', async (t) => {
  const { id, userId } = await madeKey()
  const { pool, keys, published } = open(t, { timeoutMs: 3000 })
  let answer: Promise<unknown> = Promise.resolve()
  await sql.begin(async (tx) => {
    await tx`select from api_keys where id = ${id} for update`
    // The change starts when most of its time is over, so that its own statement's time ends after it.
    const busy = pool.run((sql) => sql`select pg_sleep(2)`)
    answer = keys.revoke(id, userId, actor()).catch((error) => error)
    await busy
    t.match(await answer, { statusCode: 503 })
    t.strictSame(published, [])
  })
  await until('the change is published', () => published.length > 0)
  t.strictSame(published, [[{ keyId: id, version: 2 }]])
})

t.test('a change whose answer is held up on the way beyond the deadline is published', async (t) => {
  const { id, userId } = await madeKey()
  const proxy = await startTcpProxy(t, stores.url)
  const { keys, published } = open(t, { url: proxy.url, timeoutMs: 1000 })
  // The statement is prepared by now: one round trip is left.
  t.match(await keys.revoke('apk_0', userId, actor()), { ok: false })
  proxy.delay(1300)
  const answer = await keys.revoke(id, userId, actor()).catch((error) => error)
  t.match(answer, { statusCode: 503 })
  await until('the change is published', () => published.length > 0)
  t.strictSame(published, [[{ keyId: id, version: 2 }]])
})
