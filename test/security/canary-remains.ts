/**
 * All that is left of a service, as bytes: the files of Postgres and Redis, every command Redis was
 * sent, all output.
 */
import { readdir, readFile, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { Redis } from 'ioredis'
import type { Sql } from 'postgres'
import type { Test } from 'tap'

/** By where it was found. */
export type Remains = Record<string, Buffer | string>

/**
 * All files below a folder that were written since then, in one buffer. Except core dumps: they are
 * the memory itself, and only on machines that are set up to write them. A file that disappears
 * meanwhile (Postgres recycles its write-ahead log) is left out.
 */
export async function filesIn(folder: string, sinceMs = 0): Promise<Buffer> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const read = entries.map(async (entry) => {
    if (!entry.isFile() || /^core(?:\.|$)/.test(entry.name)) return Buffer.alloc(0)
    const file = join(entry.parentPath, entry.name)
    try {
      return (await stat(file)).mtimeMs < sinceMs ? Buffer.alloc(0) : await readFile(file)
    } catch {
      return Buffer.alloc(0)
    }
  })
  return Buffer.concat(await Promise.all(read))
}

/**
 * Makes a Postgres write every statement into its log, with its parameters: so what the service
 * sends is searched too, and not only what is stored. Returns how to read what it has written
 * since: the log, the tables, the write-ahead log.
 */
export async function logEverything(sql: Sql): Promise<() => Promise<Buffer>> {
  // Clocks of files are coarser than ours.
  const sinceMs = Date.now() - 1000
  await sql`alter system set log_statement = 'all'`
  await sql`select pg_reload_conf()`
  const [row] = await sql`show data_directory`
  return async () => {
    await sql`checkpoint`
    return filesIn(dirname(row!.data_directory), sinceMs)
  }
}

/** Listens to every command that a Redis is sent. (It leaves passwords out by itself.) */
export async function listenToRedis(t: Test, url: string) {
  const client = new Redis(url)
  client.on('error', () => {})
  const [, folder] = (await client.config('GET', 'dir')) as string[]
  const commands: string[] = []
  const monitor = await client.monitor()
  monitor.on('error', () => {})
  monitor.on('monitor', (_time: string, words: string[]) => commands.push(words.join(' ')))
  t.teardown(() => {
    monitor.disconnect()
    client.disconnect()
  })
  return {
    client,
    async remains(): Promise<Remains> {
      const names = await client.keys('*')
      const values = names.length === 0 ? [] : await client.mget(names)
      await client.save()
      return {
        'the data of Redis': JSON.stringify([names, values]),
        'the files of Redis': await filesIn(folder!),
        'the commands sent to Redis': commands.join('\n'),
      }
    },
  }
}
