// What a user of Redis must be allowed, as docs/operations.md says it.
import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'

const operations = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8')

/** The commands of the one line of the documentation that begins so. */
function commandsOf(start: string): string[] {
  const line = operations.split('\n').find((one) => one.trim().startsWith(start))
  if (line === undefined) throw new Error(`docs/operations.md has no line "${start} …"`)
  return line.match(/\+\S+/g)!
}

export const commands = commandsOf('ACL SETUSER latchkey')
export const databaseCommands = [...commands, '+select']
export const clusterCommands = [...commands, '+cluster|slots', '+asking']

/** ioredis asks for these too, and does without the answer. */
export const harmless = ['client|setinfo', 'client|setname']

/** What Redis has refused for lack of a permission. */
export async function refusedCommands(redis: Redis): Promise<string[]> {
  const entries = (await redis.call('ACL', 'LOG')) as string[][]
  const member = (entry: string[], name: string) => entry[entry.indexOf(name) + 1]!
  return entries
    .filter((entry) => member(entry, 'reason') === 'command')
    .map((entry) => member(entry, 'object'))
}
