// The stores on a fresh, migrated Postgres database, and a connection of the test's own.
import type postgres from 'postgres'
import type { Test } from 'tap'
import { createAuditLog } from '../../src/postgres/audit.ts'
import { createKeyStore } from '../../src/postgres/keys.ts'
import { migrate } from '../../src/postgres/migrate.ts'
import { createPool, type Pool } from '../../src/postgres/pool.ts'
import { createUserStore } from '../../src/postgres/users.ts'
import { newId } from '../../src/rules/id.ts'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { keyMinter } from '../../src/rules/new-key.ts'
import { tokenFormat } from '../../src/rules/token.ts'
import type { Actor, KeyUse, KeyVersion, StoredKey } from '../../src/stores.ts'
import { until } from '../process/until.ts'
import { openDatabase, useServices } from '../services/index.ts'

export type Made = StoredKey & { hash: string; token: string }
type Wanted = { name?: string; expiresAt?: number | null }

export async function openStores(t: Test, at?: string) {
  const url = at ?? (await useServices(t)).databaseUrl
  await migrate(url)
  const pool = createPool({ url, purpose: 'test', max: 4, timeoutMs: 30_000 })
  t.teardown(() => pool.close())
  const sql = openDatabase(t, url, 4)
  const stores = storesOn(pool)
  const { keys, users } = stores
  return {
    ...stores,
    pool,
    url,
    sql,
    audit: createAuditLog({ audit: pool, management: pool }),
    /** The same database, with another limit of keys. */
    keysWithLimit: (keysPerUserMax: number) => storesOn(pool, { keysPerUserMax }).keys,
    async makeUser() {
      const created = await users.create({ id: newId('usr_'), name: 'somebody' }, actor())
      if (!created.ok) throw new Error(`not created: ${created.reason}`)
      return created.user
    },
    /** With the hex HMAC it is stored under, and its token. */
    async makeKey(userId: string, wanted: Wanted = {}): Promise<Made> {
      const { expiresAt = null } = wanted
      // No key is created expired: this one expires afterwards.
      const isPast = expiresAt !== null && expiresAt <= nowS()
      const { token, key } = newKeyOf(userId, { ...wanted, expiresAt: isPast ? null : expiresAt })
      const created = await keys.create(key, actor())
      if (!created.ok) throw new Error(`not created: ${created.reason}`)
      if (isPast) await sql`update api_keys set expires_at = to_timestamp(${expiresAt}) where id = ${key.id}`
      return { ...created.key, expiresAt, hash: key.hash.toString('hex'), token }
    },
    /**
     * Starts the work while a change is made but not committed, and commits once the work waits for
     * it.
     */
    async whileUncommitted<T>(
      change: (tx: postgres.ISql) => PromiseLike<unknown>,
      work: () => Promise<T>,
      afterwards: (tx: postgres.ISql) => PromiseLike<unknown> = async () => {},
    ): Promise<T> {
      let working: Promise<T> | undefined
      await sql.begin(async (tx) => {
        await change(tx)
        working = work()
        working.catch(() => {})
        const [me] = await tx`select pg_backend_pid() as pid`
        await until('the work waits', async () => {
          const [blocked] =
            await sql`select from pg_stat_activity where ${me!.pid} = any (pg_blocking_pids(pid))`
          return blocked !== undefined
        })
        await afterwards(tx)
      })
      return working!
    },
  }
}

/** What the stores publish, oldest first; `publishing`: a publication ends with it. */
export function storesOn(pool: Pool, { keysPerUserMax = 10_000, publishing = Promise.resolve() } = {}) {
  const published: KeyVersion[] = []
  const publish = (versions: KeyVersion[]) => {
    published.push(...versions)
    return publishing
  }
  const pools = { lookups: pool, management: pool, background: pool, operator: pool }
  const keys = createKeyStore(pools, { keysPerUserMax, publish })
  return { keys, users: createUserStore({ management: pool, operator: pool }, publish), published }
}

const mintKey = keyMinter(
  tokenFormat('lk'),
  keyHasher('a secret of the tests, thirty-two characters at least'),
)

export const newKeyOf = (userId: string, wanted: Wanted = {}) =>
  mintKey({ userId, name: 'a key', rateLimitRpm: 1000, expiresAt: null, ...wanted })

/** An operator, or a key that acts for its user. */
export const actor = (keyId: string | null = null): Actor => ({
  requestId: newId('req_'),
  keyId,
  operator: keyId === null ? 'operator:ada' : null,
  method: 'POST',
  path: '/v1/keys',
  ip: '192.0.2.1',
  userAgent: 'test',
})

/** A use by an instance that knows `more` of the key. */
export const useOf = (id: string, atS = nowS(), more: Partial<KeyUse['key']> = {}): KeyUse => ({
  key: { id, userId: 'usr_1', rateLimitRpm: 1, expiresAt: null, version: 1, refreshing: true, ...more },
  atS,
})

export const nowS = () => Math.floor(Date.now() / 1000)
