/**
 * The keys to send, minted by the service's own code and stored user by user, because there may be
 * a million.
 */
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { join } from 'node:path'
import postgres from 'postgres'
import { migrate } from '../src/postgres/migrate.ts'
import { type IdPrefix, newId } from '../src/rules/id.ts'
import { keyHasher } from '../src/rules/key-hasher.ts'
import { keyMinter } from '../src/rules/new-key.ts'
import { tokenFormat } from '../src/rules/token.ts'
import { limit } from './candidates/answer.ts'

export interface Keys {
  /** One token per line. */
  tokensFile: string
  count: number
}

export const hashSecret = 'the secret of a benchmark, thirty-two characters at least'

/** With such ids, pgbench can name a row without a look-up. */
export const numberedId = (prefix: IdPrefix, n: number) => prefix + String(n).padStart(26, '0')

export interface Seeding {
  /** Users and keys have numbered ids. Only once in a run: Redis knows the versions of keys by id. */
  numbered?: { keysPerUser: number }
  /** Instead of this checkout's migrations. */
  migrate?: (databaseUrl: string) => Promise<unknown>
}

/** Creates the schema in an empty database and fills it. */
export async function seedKeys(
  databaseUrl: string,
  folder: string,
  count: number,
  { numbered, migrate: createSchema = migrate }: Seeding = {},
): Promise<Keys> {
  const { keysPerUser } = numbered ?? { keysPerUser: 1000 }
  const idOf = numbered ? numberedId : (prefix: IdPrefix) => newId(prefix)
  await createSchema(databaseUrl)
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
  try {
    const tokensFile = join(folder, `tokens-${new URL(databaseUrl).pathname.slice(1)}`)
    const tokens = createWriteStream(tokensFile)
    for (let first = 0; first < count; first += keysPerUser) {
      const userId = idOf('usr_', first / keysPerUser)
      await sql`insert into users (id, name) values (${userId}, 'a user of a benchmark')`
      const made = keysOf(userId, first, Math.min(first + keysPerUser, count), idOf)
      await sql`insert into api_keys ${sql(made.map(({ row }) => row))}`
      tokens.write(made.map(({ token }) => `${token}\n`).join(''))
    }
    tokens.end()
    await once(tokens, 'close')
    await sql`vacuum analyze`
    return { tokensFile, count }
  } finally {
    await sql.end()
  }
}

export const mintKey = keyMinter(tokenFormat('lk'), keyHasher(hashSecret))

function keysOf(userId: string, from: number, to: number, idOf: typeof numberedId) {
  return Array.from({ length: to - from }, (_, i) => {
    const wanted = { userId, name: `key ${from + i}`, rateLimitRpm: limit, expiresAt: null }
    const { token, key } = mintKey(wanted)
    const row = {
      id: idOf('apk_', from + i),
      user_id: userId,
      name: key.name,
      key_hash: key.hash,
      hash_secret_id: key.hashSecretId,
      key_prefix: key.displayPrefix,
      rate_limit_rpm: limit,
    }
    return { token, row }
  })
}
