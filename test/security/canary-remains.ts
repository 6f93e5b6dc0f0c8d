// All that is left of a service's life, as bytes: the files of Postgres and Redis, what Redis was told, what was printed.
import { readdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { Redis } from 'ioredis'
import type { Sql } from 'postgres'
import type { Test } from 'tap'

/** By where it was found. */
export type Remains = Record<string, Buffer | string>

/**
 * Every file below, in one buffer, but for a core dump: that is the memory itself, for those who set their machine up to keep it.
 * A file that goes away meanwhile (the write-ahead log is recycled) is not there.
 */
export async function filesIn(folder: string): Promise<Buffer> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile() && !/^core(?:\.|$)/.test(entry.name))
  const read = files.map((file) => readFile(join(file.parentPath, file.name)).catch(() => Buffer.alloc(0)))
  return Buffer.concat(await Promise.all(read))
}

/**
 * A Postgres that writes every statement into its log, with its parameters: what the service sends is looked through as well as
 * what is kept. Answers how to read its folder: the log, the tables, the write-ahead log.
 */
export async function tellAll(sql: Sql): Promise<() => Promise<Buffer>> {
  await sql`alter system set log_statement = 'all'`
  await sql`select pg_reload_conf()`
  const [row] = await sql`show data_directory`
  return async () => {
    await sql`checkpoint`
    return filesIn(dirname(row!.data_directory))
  }
}

export interface RedisEar {
  client: Redis
  /** What is kept now, and all it was told since it was listened to. */
  remains(): Promise<Remains>
}

/** Listens to every command a Redis is sent (it leaves passwords out by itself). */
export async function listenToRedis(t: Test, url: string): Promise<RedisEar> {
  const client = new Redis(url)
  client.on('error', () => {})
  const [, folder] = (await client.config('GET', 'dir')) as string[]
  const told: string[] = []
  const monitor = await client.monitor()
  monitor.on('error', () => {})
  monitor.on('monitor', (_time: string, words: string[]) => told.push(words.join(' ')))
  t.teardown(() => {
    monitor.disconnect()
    client.disconnect()
  })
  return {
    client,
    async remains() {
      const names = await client.keys('*')
      const values = names.length === 0 ? [] : await client.mget(names)
      await client.save()
      return {
        'what Redis keeps': JSON.stringify([names, values]),
        'the files of Redis': await filesIn(folder!),
        'what Redis was told': told.join('\n'),
      }
    },
  }
}
