// The stores on a fresh, migrated Postgres database, and a connection of the test's own to look with.
import postgres from 'postgres'
import type { Test } from 'tap'
import { createAuditLog } from '../../src/postgres/audit.ts'
import { createKeyStore } from '../../src/postgres/keys.ts'
import { migrate } from '../../src/postgres/migrate.ts'
import { createPool } from '../../src/postgres/pool.ts'
import { createUserStore } from '../../src/postgres/users.ts'
import { newId } from '../../src/rules/id.ts'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { keyMinter } from '../../src/rules/new-key.ts'
import { tokenFormat } from '../../src/rules/token.ts'
import type { Actor, KeyVersion, StoredKey, User } from '../../src/stores.ts'
import type { Services } from '../services/index.ts'

export interface PostgresStores {
  url: string
  sql: postgres.Sql
  keys: ReturnType<typeof createKeyStore>
  users: ReturnType<typeof createUserStore>
  audit: ReturnType<typeof createAuditLog>
  /** What changes have published, oldest first. */
  published: KeyVersion[]
  makeUser(): Promise<User>
  /** With the hex HMAC it is stored under, and its token. */
  makeKey(userId: string, wanted?: { name?: string; expiresAt?: number | null }): Promise<Made>
}

export type Made = StoredKey & { hash: string; token: string }

export async function openStores(
  t: Test,
  services: Pick<Services, 'createDatabase'>,
  { keysPerUserMax = 10_000, timeoutMs = 5000 } = {},
): Promise<PostgresStores> {
  const url = await services.createDatabase()
  await migrate(url)
  const pool = (purpose: string, max: number, waitMs = timeoutMs) => {
    const made = createPool({ url, purpose, max, timeoutMs: waitMs })
    t.teardown(() => made.close())
    return made
  }
  const [lookups, management, auditing, background, operator] = [
    pool('lookups', 2),
    pool('management', 4),
    pool('audit', 2),
    pool('background', 2),
    pool('operator', 1, 30_000),
  ]
  const sql = connect(t, url)
  const published: KeyVersion[] = []
  const publish = async (versions: KeyVersion[]) => void published.push(...versions)
  const keys = createKeyStore({ lookups, management, background, operator }, { keysPerUserMax, publish })
  const users = createUserStore(operator, publish)
  return {
    url,
    sql,
    keys,
    users,
    audit: createAuditLog({ audit: auditing, operator }),
    published,
    async makeUser() {
      const created = await users.create({ id: newId('usr_'), name: 'somebody' }, actor())
      if (!created.ok) throw new Error(`not created: ${created.reason}`)
      return created.user
    },
    async makeKey(userId, wanted = {}) {
      const { expiresAt = null } = wanted
      // No key is created expired: it becomes so afterwards.
      const isPast = expiresAt !== null && expiresAt <= nowS()
      const { token, key } = newKeyOf(userId, { ...wanted, expiresAt: isPast ? null : expiresAt })
      const created = await keys.create(key, actor())
      if (!created.ok) throw new Error(`not created: ${created.reason}`)
      if (isPast) await sql`update api_keys set expires_at = to_timestamp(${expiresAt}) where id = ${key.id}`
      return { ...created.key, expiresAt, hash: key.hash.toString('hex'), token }
    },
  }
}

export function connect(t: Test, url: string): postgres.Sql {
  const sql = postgres(url, { max: 4, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  return sql
}

const mintKey = keyMinter(
  tokenFormat('lk'),
  keyHasher('a secret of the tests, thirty-two characters at least'),
)

export const newKeyOf = (userId: string, wanted: { name?: string; expiresAt?: number | null } = {}) =>
  mintKey({ userId, name: 'a key', rateLimitRpm: 1000, expiresAt: null, ...wanted })

/** An operator, or a key as who it acts. */
export const actor = (keyId: string | null = null): Actor => ({
  requestId: newId('req_'),
  keyId,
  operator: keyId === null ? 'operator:ada' : null,
  method: 'POST',
  path: '/v1/keys',
  ip: '192.0.2.1',
  userAgent: 'test',
})

export const nowS = () => Math.floor(Date.now() / 1000)
