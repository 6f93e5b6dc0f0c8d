/** Keys to send, minted by the code of the service and stored by COPY, because there may be a million. */
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import postgres from 'postgres'
import { migrate } from '../src/postgres/migrate.ts'
import { newId } from '../src/rules/id.ts'
import { newKey } from '../src/rules/new-key.ts'
import { limit } from './candidates/answer.ts'

export interface Keys {
  /** One token per line. */
  tokensFile: string
  count: number
}

export const hashSecret = 'the secret of a benchmark, thirty-two characters at least'

const keysPerUser = 1000

/** Migrates an empty database and fills it. */
export async function seedKeys(databaseUrl: string, folder: string, count: number): Promise<Keys> {
  await migrate(databaseUrl)
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
  try {
    const users = Array.from({ length: Math.ceil(count / keysPerUser) }, () => newId('usr_'))
    await sql`insert into users ${sql(users.map((id) => ({ id, name: 'a user of a benchmark' })))}`
    const tokensFile = join(folder, `tokens-${new URL(databaseUrl).pathname.slice(1)}`)
    const tokens = createWriteStream(tokensFile)
    const columns = ['id', 'user_id', 'name', 'key_hash', 'hash_secret_id', 'key_prefix', 'rate_limit_rpm']
    const copy = await sql`copy api_keys (${sql(columns)}) from stdin`.writable()
    await pipeline(Readable.from(rows(users, count, (token) => tokens.write(`${token}\n`))), copy)
    tokens.end()
    await once(tokens, 'close')
    await sql`vacuum analyze`
    return { tokensFile, count }
  } finally {
    await sql.end()
  }
}

/** Lines in COPY's text format, many at a time. */
function* rows(users: string[], count: number, keep: (token: string) => void) {
  for (let first = 0; first < count; first += keysPerUser) {
    let lines = ''
    const userId = users[first / keysPerUser]!
    for (let n = first; n < Math.min(first + keysPerUser, count); n++) {
      const wanted = { userId, name: `key ${n}`, rateLimitRpm: limit, expiresAt: null }
      const { token, key } = newKey(wanted, { tokenPrefix: 'lk', hashSecret })
      keep(token)
      const hash = `\\\\x${key.hash.toString('hex')}`
      lines += `${[key.id, userId, key.name, hash, key.hashSecretId, key.displayPrefix, limit].join('\t')}\n`
    }
    yield lines
  }
}
