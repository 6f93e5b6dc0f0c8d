/**
 * Which Latchkey processes use the server: each has an empty file in DATA_DIR, named after it. A process that was killed leaves
 * its file behind, which is removed at the next look. Only for the holder of the start lock.
 */
import { randomUUID } from 'node:crypto'
import { readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { identityOf, isRunning } from './processes.ts'

export type Role = 'serve' | 'command'

export interface User {
  role: Role
  pid: number
}

const prefix = 'postgres.used-by.'

export function usersOf(dataDir: string): User[] {
  const users: User[] = []
  for (const name of readdirSync(dataDir).filter((name) => name.startsWith(prefix))) {
    const [role, identity = ''] = name.slice(prefix.length).split('.')
    if (!isRunning(identity)) rmSync(join(dataDir, name), { force: true })
    else users.push({ role: role as Role, pid: Number.parseInt(identity, 10) })
  }
  return users
}

/** Returns how to leave. */
export function addUser(dataDir: string, role: Role): () => void {
  // One process may use it more than once.
  const file = join(dataDir, `${prefix}${role}.${identityOf(process.pid)}.${randomUUID().slice(0, 8)}`)
  writeFileSync(file, '')
  return () => rmSync(file, { force: true })
}
