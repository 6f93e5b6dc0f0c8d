/** postmaster.pid: which Postgres runs in the directory, where it listens, and how far it has come. */
import { closeSync, ftruncateSync, openSync, readFileSync, unlinkSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { codeOf } from './faults.ts'
import { whose } from './processes.ts'

export interface Postmaster {
  readonly pid: number
  readonly port: number
  readonly ready: boolean
}

const fileOf = (cluster: string) => join(cluster, 'postmaster.pid')

/** What the file says, true or not. Null when there is no file. */
export function readPidFile(cluster: string): Postmaster | null {
  try {
    // The lines: process id (negative for a single-user one), directory, start, port, socket directory, address, shared memory, state.
    const lines = readFileSync(fileOf(cluster), 'utf8').split('\n')
    return { pid: Math.abs(Number(lines[0])), port: Number(lines[3]), ready: lines[7]?.trim() === 'ready' }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  }
}

/** The Postgres that runs in this directory. Makes way for a new one when there is none. */
export function findPostmaster(cluster: string): Postmaster | null {
  const named = readPidFile(cluster)
  if (named === null) return null
  if (!Number.isInteger(named.pid) || named.pid === 0) {
    // Empty after a power cut or on a full disk. Postgres would refuse to start.
    unlinkSync(fileOf(cluster))
    return null
  }
  switch (whose(named.pid, cluster)) {
    case 'ours':
      return named
    case 'gone':
    case 'other':
      disown(cluster)
      return null
    case 'unknown':
      throw new Error(
        `${fileOf(cluster)} names process ${named.pid}, which runs and cannot be looked at: if it is no Postgres, remove that file`,
      )
  }
}

/**
 * The file outlived its Postgres. If the id went to some other process, or to a zombie that nobody reaps, Postgres would refuse to
 * start for it. Put our id in its place: Postgres disregards its parent's, and goes on to check by the rest of the file that no
 * backend of the old one still uses the shared memory. Without the file that check would not be made.
 */
function disown(cluster: string): void {
  try {
    if (process.platform === 'win32') {
      unlinkSync(fileOf(cluster))
      return
    }
    const [, ...rest] = readFileSync(fileOf(cluster), 'utf8').split('\n')
    // In place, as it must stay its owner's.
    const fd = openSync(fileOf(cluster), 'r+')
    ftruncateSync(fd)
    writeSync(fd, [process.pid, ...rest].join('\n'))
    closeSync(fd)
  } catch (error) {
    // It was on its way out and has removed the file itself.
    if (codeOf(error) !== 'ENOENT') throw error
  }
}
