/** What lies where in DATA_DIR. */
import { existsSync, mkdirSync, realpathSync } from 'node:fs'
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

const pathsIn = (path: string): DataDir => ({
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
    // Only the last one is private: the user Postgres runs as may have to get through the parents.
    mkdirSync(dirname(wanted), { recursive: true })
    try {
      mkdirSync(wanted, { mode: 0o700 })
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error
    }
    // The real path: which server runs here must not depend on the link by which someone came.
    return pathsIn(realpathSync(wanted))
  } catch (error) {
    // Where no folder can be made, such as in /proc, the error is "no such file".
    if (codeOf(error) === 'ENOENT')
      throw new Error(`DATA_DIR ${resolve(path)} cannot be made: ${messageOf(error)}`, { cause: error })
    throw fileFault(error, resolve(path))
  }
}

export const hasDatabase = ({ cluster }: DataDir) => existsSync(join(cluster, 'PG_VERSION'))

/** Looks before anything is written. While another Latchkey sets one up, wait for it. */
export function requireDatabase(path: string): void {
  const dir = pathsIn(resolve(path))
  if (!hasDatabase(dir) && !existsSync(dir.startLock)) throw noDatabase(dir.path)
}

export const noDatabase = (path: string) =>
  new Error(
    `${path} has no database: set DATABASE_URL or DATA_DIR as for the service, or run \`latchkey serve\` first`,
  )
