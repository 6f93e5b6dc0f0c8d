// What a test file gets: a database of its own and its own key space in the run's Redis.
import type { Redis, RedisOptions } from 'ioredis'
import type { Test } from 'tap'
import { redisConnections } from './connect-redis.ts'
import { createDatabase, dropDatabase } from './databases.ts'
import { endWithRunner } from './end-with-runner.ts'
import type { HandOver } from './hand-over.ts'
import { runServices } from './run-services.ts'

/** A database of its own (dropped at the end) and the run's Redis. */
export interface Services {
  /** Fresh and empty. */
  readonly databaseUrl: string
  /** Null when Redis is the in-process last resort. Its path is a logical database that no other file of this run uses. */
  readonly redisUrl: string | null
  /** A new ioredis connection, for every source; options that name a host or port lead there. Closed at teardown. */
  connectRedis(options?: RedisOptions): Redis
  /** Each call: another fresh empty database. */
  createDatabase(): Promise<string>
}

let made = 0

/** For a test file's `t` or for one test's: what it made is closed and dropped at that one's teardown. */
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

/** tap numbers the files of a run. Somebody's Redis is used as it was given: its databases are not ours to choose from. */
function redisUrlOfThisFile({ redisUrl, redisDatabases }: HandOver): string | null {
  if (redisUrl === null || redisDatabases === null) return redisUrl
  return new URL(`/${Number(process.env.TAP_CHILD_ID ?? 0) % redisDatabases}`, redisUrl).href
}
