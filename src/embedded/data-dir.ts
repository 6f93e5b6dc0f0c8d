/** What is where in DATA_DIR. */
import { existsSync, mkdirSync, readdirSync, realpathSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { codeOf, fileFault } from './faults.ts'

export interface DataDir {
  readonly path: string
  /** Postgres's own directory. */
  readonly cluster: string
  readonly log: string
  readonly password: string
  /** Names the Latchkey that owns the Postgres. */
  readonly lock: string
  /** Links to the libraries, where node_modules cannot be written. */
  readonly libraries: string
}

const pathsIn = (path: string): DataDir => ({
  path,
  cluster: join(path, 'postgres'),
  log: join(path, 'postgres.log'),
  password: join(path, 'postgres-password'),
  lock: join(path, 'postgres.lock'),
  libraries: join(path, 'postgres-libraries'),
})

export function openDataDir(given: string): DataDir {
  const path = resolve(given)
  try {
    // Only the last directory is private: the user that Postgres runs as may need to pass through
    // its parents.
    makeDirectory(path, 0o700)
    // The real path: two paths to the same directory must find the same server.
    return pathsIn(realpathSync(path))
  } catch (error) {
    // Where no directory can be made, as in /proc, the error is "no such file".
    if (codeOf(error) === 'ENOENT') throw new Error(`DATA_DIR ${path} cannot be created`, { cause: error })
    throw fileFault(error, path)
  }
}

/** Its parents too. Not by mkdir's `recursive`, which never returns in /proc. */
function makeDirectory(path: string, mode?: number): void {
  if (existsSync(path)) return
  makeDirectory(dirname(path))
  try {
    mkdirSync(path, { mode })
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error
  }
}

export const hasDatabase = ({ cluster }: DataDir) => existsSync(join(cluster, 'PG_VERSION'))

/**
 * Checks before anything is written. If another Latchkey may be setting one up, the caller waits
 * for it.
 */
export function requireDatabase(path: string): void {
  const dir = pathsIn(resolve(path))
  if (hasDatabase(dir) || existsSync(dir.lock)) return
  throw isClosed(dir.path)
    ? new Error(`DATA_DIR ${dir.path} is closed to this user: run the command as the user of the service`)
    : noDatabase(dir.path)
}

function isClosed(path: string): boolean {
  try {
    readdirSync(path)
    return false
  } catch (error) {
    return codeOf(error) === 'EACCES'
  }
}

export const noDatabase = (path: string) =>
  new Error(
    `${path} has no database: set DATABASE_URL or DATA_DIR as for the service, or run \`latchkey serve\` first`,
  )
