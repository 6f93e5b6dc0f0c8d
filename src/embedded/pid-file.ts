/** postmaster.pid: which Postgres runs in the directory, where it listens, and how far it has come. */
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { codeOf } from './faults.ts'
import { isPostgresOf } from './processes.ts'

export interface Postmaster {
  readonly pid: number
  readonly port: number
  readonly ready: boolean
}

const fileIn = (cluster: string) => join(cluster, 'postmaster.pid')

/** What the file says, true or not. Null when there is no file. */
export function readPidFile(cluster: string): Postmaster | null {
  try {
    // The lines: process id (negative in single-user mode), directory, start, port, socket directory, address, shared memory, state.
    const lines = readFileSync(fileIn(cluster), 'utf8').split('\n')
    return { pid: Math.abs(Number(lines[0])), port: Number(lines[3]), ready: lines[7]?.trim() === 'ready' }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  }
}

/**
 * The Postgres that runs in this directory. If the file outlived it, and its id went to another process or to a zombie, Postgres
 * would refuse to start, so remove the file. Postgres finds backends that are left by their shared memory all the same.
 */
export function findPostmaster(cluster: string): Postmaster | null {
  const named = readPidFile(cluster)
  if (named === null || (named.pid > 0 && isPostgresOf(cluster, named.pid))) return named
  rmSync(fileIn(cluster), { force: true })
  return null
}
