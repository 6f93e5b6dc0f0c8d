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

export async function makeCluster(dir: DataDir, binaries: Binaries, launch: Launch): Promise<void> {
  const work = mkdtempSync(join(dir.path, halfMade))
  try {
    // A copy of the password that initdb may read, whoever it runs as.
    const password = join(work, 'password')
    writeFileSync(password, readOrMakePassword(dir), { mode: 0o600 })
    if (launch.owner !== null)
      for (const path of [password, work]) chownSync(path, launch.owner, launch.owner)

    const made = join(work, 'cluster')
    await initdb(dir, binaries, launch, made, password)
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

function initdb(
  dir: DataDir,
  binaries: Binaries,
  launch: Launch,
  made: string,
  password: string,
): Promise<void> {
  const [file, args] = commandOf(launch, binaries.initdb, [
    `--pgdata=${made}`,
    `--pwfile=${password}`,
    '--username=latchkey',
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    '--no-instructions',
  ])
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, {
      ...launch.as,
      cwd: dir.path,
      env: binaries.env,
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: initdbMsMax,
      windowsHide: true,
    })
    let output = ''
    const keep = (chunk: Buffer) => {
      output = (output + chunk).slice(-16_384)
    }
    child.stdout.on('data', keep)
    child.stderr.on('data', keep)
    child.on('error', (cause) => reject(new Error(`initdb could not be run: ${cause.message}`, { cause })))
    child.on('close', (code, signal) => {
      if (code === 0) return resolve()
      if (saysDiskFull(output)) return reject(diskFull(dir.path))
      const why = code === null ? `ended by ${signal}` : lastRelevantLine(output)
      reject(new Error(`Postgres could not be set up in ${dir.path}: ${why}`))
    })
  })
}
