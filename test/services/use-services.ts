// What a test file gets: a database of its own and its own key space in the run's Redis.
import type { Redis, RedisOptions } from 'ioredis'
import type { Test } from 'tap'
import { createDatabase, dropDatabase } from './databases.ts'
import { redisConnections } from './redis-connections.ts'
import { endWithRunner, type HandOver, runServices } from './run-services.ts'

export interface Services {
  /** Fresh and empty. Dropped at the end. */
  readonly databaseUrl: string
  /**
   * A logical database that no other file of this run uses. Null if Redis is emulated in this
   * process.
   */
  readonly redisUrl: string | null
  /**
   * A new connection, whatever the source; options that name a host or port lead there. Closed at
   * the end.
   */
  connectRedis(options?: RedisOptions): Redis
  /** Each call: another fresh, empty database. */
  createDatabase(): Promise<string>
}

let made = 0

/** For a test file's `t` or for one test's: its teardown closes and drops everything. */
export async function useServices(t: Test): Promise<Services> {
  const handOver = await runServices()
  endWithRunner()
  const { run, postgresUrl } = handOver
  const redisUrl = redisUrlOfThisFile(handOver)
  const redis = await redisConnections(redisUrl)
  const databases: string[] = []
  t.teardown(async () => {
    redis.closeAll()
    for (const url of databases) await dropDatabase(postgresUrl, url)
  })

  async function create(): Promise<string> {
    const url = await createDatabase(postgresUrl, run, `${process.pid}_${++made}`)
    databases.push(url)
    return url
  }
  return { databaseUrl: await create(), redisUrl, connectRedis: redis.connect, createDatabase: create }
}

/**
 * tap numbers the files of a run, and `runTogether` those that it runs. A Redis that somebody else
 * runs is used as given: its databases are not ours.
 */
function redisUrlOfThisFile({ redisUrl, redisDatabases }: HandOver): string | null {
  if (redisUrl === null || redisDatabases === null) return redisUrl
  const { TAP_CHILD_ID = 0, TOGETHER_ID = 0 } = process.env
  const file = Number(TAP_CHILD_ID) * 64 + Number(TOGETHER_ID)
  return new URL(`/${file % redisDatabases}`, redisUrl).href
}
