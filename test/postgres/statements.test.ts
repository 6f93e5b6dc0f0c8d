// What the statements of the key store do inside Postgres: which rows they visit, and what they send back.
import postgres from 'postgres'
import t from 'tap'
import { createKeyStore } from '../../src/postgres/keys.ts'
import type { Pool } from '../../src/postgres/pool.ts'
import { newId } from '../../src/rules/id.ts'
import { useServices } from '../services/index.ts'
import { newKeyOf, openStores } from './open-stores.ts'

const { url, sql, makeUser, makeKey } = await openStores(t, await useServices(t))

interface Statement {
  text: string
  values: unknown[]
}

const sent: Statement[] = []
const watched = postgres(url, {
  max: 1,
  debug: (_connection, text, values) => sent.push({ text, values }),
})
t.teardown(() => watched.end({ timeout: 1 }))
const pool: Pool = { run: (work) => work(watched), isReadOnly: false, close: () => watched.end() }
const pools = { lookups: pool, management: pool, background: pool, operator: pool }
const keys = createKeyStore(pools, { keysPerUserMax: 10_000, publish: async () => {} })

/** The last statement that this work sends. */
async function statementOf(work: () => Promise<unknown>): Promise<Statement> {
  sent.length = 0
  await work()
  return sent.at(-1)!
}

/** As many keys of a new user as there are; the columns by an SQL expression in their number n. */
async function manyKeys(count: number, { expiresAt = 'null', revokedAt = 'null' }) {
  const { id } = await makeUser()
  await sql.unsafe(
    `insert into api_keys (id, user_id, name, key_hash, hash_secret_id, key_prefix, created_at, expires_at, revoked_at)
     select 'apk_' || $1::text || n, $2, 'a key', sha256(($1::text || n)::bytea), 'x', 'lk_1234567',
       now() - make_interval(secs => n), ${expiresAt}, ${revokedAt}
     from generate_series(1, ${count}) n`,
    [newId('apk_').slice(4), id],
  )
  return id
}

t.test(
  'a page of any status is read from an index, in order and past no row of another status',
  async (t) => {
    const [future, past] = ["now() + interval '1 day'", "now() - interval '1 day'"]
    const users = {
      active: await manyKeys(3000, {}),
      'active, expiring': await manyKeys(3000, { expiresAt: future }),
      expired: await manyKeys(3000, { expiresAt: past }),
      revoked: await manyKeys(3000, { revokedAt: 'now()' }),
    }
    await sql`analyze api_keys`
    for (const [name, userId] of Object.entries(users))
      for (const status of ['active', 'expired', 'revoked'] as const) {
        const { text, values } = await statementOf(() => keys.list(userId, { limit: 101, status }))
        const rows = await sql.unsafe(`explain (analyze, costs off, timing off) ${text}`, values as string[])
        const plan = rows.map((row) => row['QUERY PLAN']).join('\n')
        const index = status === 'revoked' ? 'api_keys_revoked' : 'api_keys_not_revoked'
        t.match(plan, `Index Scan using ${index}`, `${status} of a user whose keys are ${name}`)
        t.notMatch(plan, /Rows Removed|Sort/)
      }
  },
)

t.test('an unknown hash reads and sends a row as a known one does', async (t) => {
  const user = await makeUser()
  const { hash } = await makeKey(user.id)
  const answers = []
  for (const asked of [hash, '00'.repeat(32)]) {
    const { text, values } = await statementOf(() => keys.findByHash([asked]))
    answers.push(await sql.unsafe(text, values as string[]))
  }
  t.strictSame(
    answers.map((rows) => rows.length),
    [1, 1],
  )
  t.strictSame(Object.keys(answers[1]![0]!), Object.keys(answers[0]![0]!))
})

t.test('a key is stored under another hash only if it still has the one it was found by', async (t) => {
  const user = await makeUser()
  const [key, other] = [await makeKey(user.id), await makeKey(user.id)]
  const to = newKeyOf(user.id).key.hash.toString('hex')
  await keys.rehash([{ id: key.id, from: other.hash, to }], 'hs_new')
  const found = async (hash: string) => (await keys.findByHash([hash])).map(({ id }) => id)
  t.strictSame(await found(key.hash), [key.id])
  t.strictSame(await found(to), [])
  await keys.rehash([{ id: key.id, from: key.hash, to }], 'hs_new')
  t.strictSame(await found(key.hash), [])
  t.match(await keys.findByHash([to]), [{ id: key.id, hashSecretId: 'hs_new' }])
})
