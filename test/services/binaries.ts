// Servers installed on this machine, the Postgres that npm has installed, and which of the two a
// run may use.
import { access, constants, readdir } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'
import { type Binaries, findBinaries } from '../../src/embedded/binaries.ts'
import { childEnv } from '../../src/embedded/child-env.ts'

export type { Binaries }

/** Where Postgres and Redis come from, in the order in which they are tried. */
export const sources = ['env', 'docker', 'local', 'npm'] as const
export type Source = (typeof sources)[number]

/** TEST_SERVICES: one source for both, or null for the order above. */
export function forcedSource(): Source | null {
  const wanted = process.env.TEST_SERVICES
  if (!wanted) return null
  const source = sources.find((name) => name === wanted)
  if (!source) throw new Error(`TEST_SERVICES must be one of ${sources.join(', ')}`)
  return source
}

/** TEST_SERVICES=npm stands for a machine that has neither server. */
export const findRedisServer = async (): Promise<string | null> =>
  forcedSource() === 'npm' ? null : onPath('redis-server')

export async function findLocalPostgres(): Promise<Binaries | null> {
  if (forcedSource() === 'npm') return null
  const debian = '/usr/lib/postgresql'
  const versions = (await readdir(debian).catch(() => [])).sort((a, b) => Number(b) - Number(a))
  const folders = versions.map((version) => join(debian, version, 'bin'))
  const named = await onPath('initdb')
  if (named) folders.push(dirname(named))
  for (const directory of folders) {
    const [initdb, postgres, pgCtl] = ['initdb', 'postgres', 'pg_ctl'].map((name) => join(directory, name))
    if ((await isProgram(initdb!)) && (await isProgram(postgres!)))
      return { initdb: initdb!, postgres: postgres!, pgCtl: pgCtl!, env: childEnv() }
  }
  return null
}

/** For a private Postgres. `folder` takes links that the package's own folder may not take. */
export async function findAnyPostgres(folder: string): Promise<Binaries> {
  const local = await findLocalPostgres()
  if (local) return local
  if (forcedSource() === 'local')
    throw new Error('TEST_SERVICES=local, and this machine has no Postgres binaries')
  return findBinaries(join(folder, 'libraries'))
}

export async function onPath(name: string): Promise<string | null> {
  for (const folder of (process.env.PATH ?? '').split(delimiter))
    if (folder !== '' && (await isProgram(join(folder, name)))) return join(folder, name)
  return null
}

export const isProgram = (path: string) =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  )
