/**
 * One Latchkey at a time owns the Postgres of a DATA_DIR: only the owner sets it up, starts it and
 * stops it. The lock file names the owner. A killed owner leaves its lock behind, and the next
 * Latchkey removes it.
 */
import { randomUUID } from 'node:crypto'
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { codeOf } from './faults.ts'
import { identityOf, isRunning } from './processes.ts'

export type Role = 'serve' | 'command'

export interface Owner {
  role: Role
  /** Starts with its process id. */
  identity: string
}

/** False if the lock exists. */
export function takeLock(path: string, role: Role): boolean {
  try {
    write(path, role, linkSync)
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false
    throw error
  }
}

/** For the owner: from now on commands wait for it to end. */
export const lockAsCommand = (path: string) => write(path, 'command', renameSync)

/** The content first, then the name: nobody reads a lock that is half written. */
function write(path: string, role: Role, place: (from: string, to: string) => void): void {
  const own = `${path}.${randomUUID()}`
  try {
    writeFileSync(own, `${role} ${identityOf(process.pid)}`)
    place(own, path)
  } finally {
    rmSync(own, { force: true })
  }
}

export const unlock = (path: string) => rmSync(path, { force: true })

/** Null if nobody owns it. Removes the lock of an owner that was killed. */
export function ownerOf(path: string): Owner | null {
  const owner = read(path)
  if (owner === null || isRunning(owner.identity)) return owner
  // Two processes may notice this at once, and the slower one must not remove the faster one's new
  // lock. So only the holder of a second lock removes the first, after checking again.
  const breaking = `${path}.breaking`
  const mine = takeLock(breaking, 'command')
  const stale = mine ? path : breaking
  const holder = read(stale)
  if (holder !== null && !isRunning(holder.identity)) unlock(stale)
  if (mine) unlock(breaking)
  return null
}

function read(path: string): Owner | null {
  try {
    const [role, identity = ''] = readFileSync(path, 'utf8').split(' ')
    return { role: role as Role, identity }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  }
}
