/**
 * Postgres's own directory: made by initdb beside its place and then renamed, so that it is either whole or absent. For the holder
 * of the start lock.
 */
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
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
import { type DataDir, hasDatabase } from './data-dir.ts'
import { codeOf, diskFull, lastRelevantLine, saysDiskFull } from './faults.ts'
import { createSecret, readSecret, syncDirectory } from './secret-file.ts'

const halfMade = 'postgres.new-'
// initdb ends with writing some 40 MB to disk.
const setUpMsMax = 300_000
// The superuser that initdb creates has no password and is only used in single-user mode, for the set-up. The role of the
// service is no superuser; it may create databases, which `npm run bench` and a trial restore need.
const whoMayLogIn = 'host all latchkey 127.0.0.1/32 scram-sha-256\n'

/** Whether there is one. Throws when this Postgres cannot run what is there. */
export function hasCluster(dir: DataDir, major: string): boolean {
  if (hasDatabase(dir)) {
    const made = readFileSync(join(dir.cluster, 'PG_VERSION'), 'utf8').trim()
    if (made === major) return true
    throw new Error(
      `The data in ${dir.cluster} was made by Postgres ${made} and this Latchkey brings Postgres ${major}: move it over with pg_dump from the Latchkey that made it, or start over with another DATA_DIR`,
    )
  }
  if (existsSync(dir.cluster) && readdirSync(dir.cluster).length > 0) {
    throw new Error(
      `${dir.cluster} holds something that is not a Postgres: move it away, or use another DATA_DIR`,
    )
  }
  return false
}

/** Blocks the process for a second or so: nothing else is going on yet. */
export function makeCluster(dir: DataDir, binaries: Binaries, launch: Launch): void {
  const work = mkdtempSync(join(dir.path, halfMade))
  const run = (program: string, args: string[], input = '') => {
    const [file, words] = commandOf(launch, program, args)
    const { status, signal, stdout, stderr, error } = spawnSync(file, words, {
      ...launch.as,
      cwd: dir.path,
      env: binaries.env,
      input,
      encoding: 'utf8',
      timeout: setUpMsMax,
      windowsHide: true,
    })
    if (status === 0) return
    const output = `${stdout ?? ''}${stderr ?? ''}`
    if (saysDiskFull(output)) throw diskFull(dir.path)
    const why = lastRelevantLine(output) || error?.message || `ended by ${signal}`
    throw new Error(`Postgres could not be set up in ${dir.path}: ${why}`)
  }
  try {
    if (launch.owner !== null) chownSync(work, launch.owner, launch.owner)
    const made = join(work, 'cluster')
    const options = ['--username=postgres', '--auth=reject', '--encoding=UTF8', '--locale=C']
    run(binaries.initdb, [`--pgdata=${made}`, ...options, '--no-instructions'])
    run(
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

/** One statement a line, as single-user mode wants them. The password is on disk before the cluster: without it, that is lost. */
function roleAndDatabase({ password: file }: DataDir): string {
  // Letters and digits: it is part of a URL.
  const password = readSecret(file) ?? createSecret(file, randomBytes(24).toString('hex'))
  return `create role latchkey login createdb password '${password}'\ncreate database latchkey owner latchkey\n`
}

/** Files change hands when Postgres runs as another user than before. The directory itself comes last: it marks the end. */
export function handOver(cluster: string, { owner }: Launch): void {
  if (owner === null || lstatSync(cluster).uid === owner) return
  for (const entry of readdirSync(cluster, { recursive: true, encoding: 'utf8' }))
    lchownSync(join(cluster, entry), owner, owner)
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
