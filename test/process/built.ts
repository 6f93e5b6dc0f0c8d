// What a user runs: the command line as it is shipped, and the demo. JavaScript, compiled from the
// current sources. In a folder of its own, named after a digest of the sources: `dist/` may be older,
// or be written by a build at the same moment.
import { execFile } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import { access, mkdir, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const root = fileURLToPath(new URL('../../', import.meta.url))
// Inside the project: from here `#sql/*`, `latchkey/package.json` and node_modules are found as from `dist/`.
const builds = join(root, '.tap', 'build')
const compiled = ['src', 'plugins', 'schemas', 'bench']
const keptMs = 24 * 3_600_000

let built: Promise<string> | undefined

/** The path of cli.js. Compiles at the first call, unless there is a build of these sources. */
export function builtCli(): Promise<string> {
  built ??= build()
  return built
}

async function build(): Promise<string> {
  const folder = join(builds, await digest())
  const cli = join(folder, 'src', 'cli.js')
  if (await exists(cli)) return cli
  await removeOld()
  // Renamed into place: if two test files build at once, one finds the other's whole build.
  const own = `${folder}.${randomUUID()}`
  await compile(own)
  try {
    await rename(own, folder)
  } catch (cause) {
    await rm(own, { recursive: true, force: true })
    if (!(await exists(cli))) throw cause
  }
  return cli
}

/** Types are checked elsewhere (`npm run build`); here they would only cost time. */
async function compile(outDir: string): Promise<void> {
  const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc')
  const without = ['--noCheck', '--declaration', 'false', '--sourceMap', 'false']
  await promisify(execFile)(
    process.execPath,
    [tsc, '-p', join(root, 'tsconfig.bench.json'), '--outDir', outDir, ...without],
    {
      env: { PATH: process.env.PATH },
    },
  )
}

async function digest(): Promise<string> {
  const hash = createHash('sha256')
  const files = ['package.json', 'tsconfig.json', 'tsconfig.bench.json']
  for (const folder of compiled) {
    const names = await readdir(join(root, folder), { recursive: true })
    files.push(...names.filter((name) => name.endsWith('.ts')).map((name) => join(folder, name)))
  }
  for (const file of files.sort()) hash.update(`${file}\0`).update(await readFile(join(root, file)))
  return hash.digest('hex').slice(0, 16)
}

/** Removes builds of older sources. Another run may still use a recent one. */
async function removeOld(): Promise<void> {
  await mkdir(builds, { recursive: true })
  for (const name of await readdir(builds)) {
    const path = join(builds, name)
    const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Date.now() }))
    if (Date.now() - mtimeMs > keptMs) await rm(path, { recursive: true, force: true })
  }
}

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  )
