/** What lies where in DATA_DIR, and the password of the Postgres in it. */
import { randomBytes } from 'node:crypto'
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { codeOf, fileFault, messageOf } from './faults.ts'

export interface DataDir {
  readonly path: string
  /** Postgres's own directory. */
  readonly cluster: string
  readonly log: string
  readonly password: string
  readonly startLock: string
  /** Links to the libraries, where node_modules cannot be written. */
  readonly libraries: string
}

export const pathsIn = (path: string): DataDir => ({
  path,
  cluster: join(path, 'postgres'),
  log: join(path, 'postgres.log'),
  password: join(path, 'postgres-password'),
  startLock: join(path, 'postgres.lock'),
  libraries: join(path, 'postgres-libraries'),
})

export function openDataDir(path: string): DataDir {
  try {
    const wanted = resolve(path)
    // Only the last one is private: the parents may have to be passed by the user Postgres runs as.
    mkdirSync(dirname(wanted), { recursive: true })
    try {
      mkdirSync(wanted, { mode: 0o700 })
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error
    }
    // The real path: what the running server is known by must not depend on who came by which link.
    return pathsIn(realpathSync(wanted))
  } catch (error) {
    // Where no folder can be made, such as in /proc, there is "no such file".
    if (codeOf(error) === 'ENOENT')
      throw new Error(`DATA_DIR ${resolve(path)} cannot be made: ${messageOf(error)}`, { cause: error })
    throw fileFault(error, resolve(path))
  }
}

/** Null when there is none. */
export function readPassword(dir: DataDir): string | null {
  try {
    return readFileSync(dir.password, 'utf8').trim() || null
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw fileFault(error, dir.path)
  }
}

/** Made before the cluster that it opens, and on disk by then: a cluster without its password is lost. */
export function readOrMakePassword(dir: DataDir): string {
  const kept = readPassword(dir)
  if (kept !== null) return kept
  // Letters and digits: it stands in a URL.
  const password = randomBytes(24).toString('hex')
  const half = `${dir.password}.new`
  writeFileSync(half, `${password}\n`, { mode: 0o600, flush: true })
  renameSync(half, dir.password)
  syncDirectory(dir.path)
  return password
}

/** A rename is only lasting once its directory is on disk. Windows has no such thing. */
export function syncDirectory(path: string): void {
  if (process.platform === 'win32') return
  const fd = openSync(path, 'r')
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}
