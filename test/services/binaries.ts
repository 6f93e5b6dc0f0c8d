// Servers installed on this machine, and the Postgres that npm has installed.
import { access, constants, readdir } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'
import { type Binaries, findBinaries } from '../../src/embedded/binaries.ts'
import { childEnv } from '../../src/embedded/child-env.ts'
import { forcedSource } from './sources.ts'

const debian = '/usr/lib/postgresql'

export type { Binaries }

/** Null too where TEST_SERVICES=npm asks for the life of a machine that has none. */
export async function findRedisServer(): Promise<string | null> {
  return forcedSource() === 'npm' ? null : onPath('redis-server')
}

export async function findLocalPostgres(): Promise<Binaries | null> {
  const versions = (await readdir(debian).catch(() => [])).sort((a, b) => Number(b) - Number(a))
  const folders = versions.map((version) => join(debian, version, 'bin'))
  const named = await onPath('initdb')
  if (named) folders.push(dirname(named))
  for (const directory of folders) {
    const [initdb, postgres, pgCtl] = ['initdb', 'postgres', 'pg_ctl'].map((name) => join(directory, name))
    if ((await isProgram(initdb!)) && (await isProgram(postgres!))) {
      return { directory, initdb: initdb!, postgres: postgres!, pgCtl: pgCtl!, env: childEnv() }
    }
  }
  return null
}

/** For Postgres servers of one test's own. `folder`: for links that the package's own folder may not take. */
export async function findAnyPostgres(folder: string): Promise<Binaries> {
  const forced = forcedSource()
  const local = forced === 'npm' ? null : await findLocalPostgres()
  if (local) return local
  if (forced === 'local') throw new Error('TEST_SERVICES=local, and this machine has no Postgres binaries')
  return findBinaries(join(folder, 'libraries'))
}

async function onPath(name: string): Promise<string | null> {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    if (folder !== '' && (await isProgram(join(folder, name)))) return join(folder, name)
  }
  return null
}

const isProgram = (path: string) =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  )
