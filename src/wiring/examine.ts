/** Examines the servers of a configuration, for `latchkey doctor`. */
import { join } from 'node:path'
import type { Config } from '../config.ts'
import { openEmbeddedPostgres } from '../embedded/postgres.ts'
import { readSecret } from '../embedded/secret-file.ts'
import { examinePostgres } from '../postgres/examine.ts'
import { examineRedis } from '../redis/examine.ts'
import type { Finding } from '../rules/finding.ts'
import { keyHasher } from '../rules/key-hasher.ts'
import { poolBounds } from './pools.ts'

/** Both servers at once; each answers or is given up within seconds. */
export async function examine(config: Config): Promise<Finding[]> {
  const [database, redis] = await Promise.all([
    examineDatabase(config),
    config.redis === null ? [inMemory(config)] : examineRedis(config.redis),
  ])
  return [...database, ...redis]
}

const inMemory = ({ databaseUrl }: Config): Finding => {
  const found = 'no REDIS_URL: requests are counted in memory'
  if (databaseUrl === null) return { about: 'Redis', state: 'ok', found }
  const advice = 'Right for one instance only: several would each admit the full limit. Set REDIS_URL.'
  return { about: 'Redis', state: 'note', found, advice }
}

const connectionsMax = Object.values(poolBounds).reduce((sum, { max }) => sum + max, 0)

async function examineDatabase(config: Config): Promise<Finding[]> {
  const { databaseUrl, pgSsl, dataDir } = config
  if (databaseUrl !== null) return examinePostgres({ url: databaseUrl, ssl: pgSsl, ...wantedBy(config) })
  try {
    const wanted = wantedBy(config)
    const embedded = await openEmbeddedPostgres({ dataDir, role: 'command', mustExist: true })
    try {
      return await examinePostgres({ url: embedded.url, ssl: {}, ...wanted })
    } finally {
      await embedded.stop()
    }
  } catch (error) {
    const advice = 'See "Embedded mode" in docs/operations.md.'
    return [{ about: 'Postgres', state: 'wrong', found: (error as Error).message, advice }]
  }
}

/** What the database is to fit. */
function wantedBy({ hashSecret, hashSecretPrevious, tokenPrefix, dataDir }: Config) {
  const secret = hashSecret ?? readSecret(join(dataDir, 'hash-secret'))
  const hasher = secret === null ? null : keyHasher(secret, hashSecretPrevious)
  const secretIds = { secretId: hasher?.secretId ?? null, previousSecretId: hasher?.previousSecretId ?? null }
  return { ...secretIds, tokenPrefix, connectionsMax }
}
