// What a user of Redis must be allowed, read from docs/operations.md.
import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'

const operations = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8')

/** The commands in the line of the documentation that starts like this. */
function commandsOf(start: string): string[] {
  const line = operations.split('\n').find((one) => one.trim().startsWith(start))
  if (line === undefined) throw new Error(`docs/operations.md has no line "${start} …"`)
  return line.match(/\+\S+/g)!
}

export const commands = commandsOf('ACL SETUSER latchkey')
export const databaseCommands = [...commands, '+select']
export const clusterCommands = [...commands, '+cluster|slots', '+asking']

/** ioredis sends these too, and can do without the answer. */
export const harmless = ['client|setinfo', 'client|setname']

/** The commands that Redis has refused for lack of a permission. */
export async function refusedCommands(redis: Redis): Promise<string[]> {
  const entries = (await redis.call('ACL', 'LOG')) as string[][]
  const member = (entry: string[], name: string) => entry[entry.indexOf(name) + 1]!
  return entries
    .filter((entry) => member(entry, 'reason') === 'command')
    .map((entry) => member(entry, 'object'))
}
