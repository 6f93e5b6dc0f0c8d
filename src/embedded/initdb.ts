/**
 * Postgres's own directory: made by initdb beside its place and then renamed, so that it is either whole or absent. All of
 * this is for who holds the start lock.
 */
import { spawn } from 'node:child_process'
import {
  chownSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { commandOf, type Launch } from './as-unprivileged.ts'
import type { Binaries } from './binaries.ts'
import { type DataDir, readOrMakePassword, syncDirectory } from './data-dir.ts'
import { codeOf, diskFull, fileFault, lastRelevantLine, saysDiskFull } from './faults.ts'

const halfMade = 'postgres.new-'
// It ends with writing some 40 MB out to the disk.
const initdbMsMax = 300_000

/** Whether there is one. Throws when what is there cannot be served by this Postgres. */
export function hasCluster(dir: DataDir, major: string): boolean {
  try {
    const made = readFileSync(join(dir.cluster, 'PG_VERSION'), 'utf8').trim()
    if (made === major) return true
    throw new Error(
      `The data in ${dir.cluster} was made by Postgres ${made} and this Latchkey brings Postgres ${major}: move it over with pg_dump from the Latchkey that made it, or start anew with another DATA_DIR`,
    )
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw fileFault(error, dir.path)
  }
  if (existsSync(dir.cluster) && readdirSync(dir.cluster).length > 0) {
    throw new Error(
      `${dir.cluster} holds something that is not a Postgres: move it away, or use another DATA_DIR`,
    )
  }
  return false
}

// The superuser that initdb makes has no password, and is only used in single-user mode, for the set-up.
const whoMayLogIn = 'host all latchkey 127.0.0.1/32 scram-sha-256\n'

/** One statement a line, as single-user mode wants them. */
const roleAndDatabase = (dir: DataDir) => `
create role latchkey login password '${readOrMakePassword(dir)}'
create database latchkey owner latchkey
`

export async function makeCluster(dir: DataDir, binaries: Binaries, launch: Launch): Promise<void> {
  const work = mkdtempSync(join(dir.path, halfMade))
  try {
    if (launch.owner !== null) chownSync(work, launch.owner, launch.owner)
    const made = join(work, 'cluster')
    const options = ['--username=postgres', '--auth=reject', '--encoding=UTF8', '--locale=C']
    const run = (program: string, args: string[], input: string) =>
      runToEnd(dir, binaries, launch, { program, args, input })
    await run(binaries.initdb, [`--pgdata=${made}`, ...options, '--no-instructions'], '')
    await run(
      binaries.postgres,
      ['--single', '-D', made, '-c', 'exit_on_error=on', 'postgres'],
      roleAndDatabase(dir),
    )
    writeFileSync(join(made, 'pg_hba.conf'), whoMayLogIn)
    if (existsSync(dir.cluster)) rmdirSync(dir.cluster)
    renameSync(made, dir.cluster)
    syncDirectory(dir.path)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

/** Files change hands when the way around root's refusal has changed. The directory itself last: it tells that all is done. */
export function handOver(cluster: string, { owner }: Launch): void {
  if (owner === null || lstatSync(cluster).uid === owner) return
  for (const entry of readdirSync(cluster, { recursive: true, encoding: 'utf8' })) {
    lchownSync(join(cluster, entry), owner, owner)
  }
  lchownSync(cluster, owner, owner)
}

/** Left by a start that was killed. Its initdb may still be writing there; then the next start removes the rest. */
export function removeHalfMade(dir: DataDir): void {
  for (const entry of readdirSync(dir.path).filter((name) => name.startsWith(halfMade))) {
    try {
      rmSync(join(dir.path, entry), { recursive: true, force: true })
    } catch (error) {
      if (codeOf(error) !== 'ENOTEMPTY') throw error
    }
  }
}

function runToEnd(
  dir: DataDir,
  binaries: Binaries,
  launch: Launch,
  { program, args: words, input }: { program: string; args: string[]; input: string },
): Promise<void> {
  const [file, args] = commandOf(launch, program, words)
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, {
      ...launch.as,
      cwd: dir.path,
      env: binaries.env,
      stdio: ['pipe', 'pipe', 'pipe'],
      timeout: initdbMsMax,
      windowsHide: true,
    })
    let output = ''
    const keep = (chunk: Buffer) => {
      output = (output + chunk).slice(-16_384)
    }
    child.stdin.on('error', () => {})
    child.stdin.end(input)
    child.stdout.on('data', keep)
    child.stderr.on('data', keep)
    child.on('error', (cause) =>
      reject(new Error(`${program} could not be run: ${cause.message}`, { cause })),
    )
    child.on('close', (code, signal) => {
      if (code === 0) return resolve()
      if (saysDiskFull(output)) return reject(diskFull(dir.path))
      const why = code === null ? `ended by ${signal}` : lastRelevantLine(output)
      reject(new Error(`Postgres could not be set up in ${dir.path}: ${why}`))
    })
  })
}
