/**
 * Creates Postgres's own directory: initdb works beside its place, then it is renamed, so that it
 * is either whole or absent.
 */
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
import { dirname, join } from 'node:path'
import { type Launch, run } from './as-unprivileged.ts'
import type { Binaries } from './binaries.ts'
import { type DataDir, hasDatabase } from './data-dir.ts'
import { createSecret, readSecret, syncDirectory } from './secret-file.ts'

const halfMade = 'postgres.new-'
// initdb ends with writing some 40 MB to disk.
const setUpMsMax = 300_000
// The superuser that initdb creates has no password, and only the set-up uses it, in single-user
// mode. The service's role is no superuser. It may create databases, which `npm run bench` and a
// trial restore need.
const whoMayLogIn = 'host all latchkey 127.0.0.1/32 scram-sha-256\n'

/** Whether there is a cluster. Throws if this Postgres cannot run what is there. */
export function hasCluster(dir: DataDir, major: string): boolean {
  if (hasDatabase(dir)) {
    const made = readFileSync(join(dir.cluster, 'PG_VERSION'), 'utf8').trim()
    if (made === major) return true
    throw new Error(
      `The data in ${dir.cluster} was made by Postgres ${made} and this Latchkey brings Postgres ${major}: move it over with pg_dump from the Latchkey that made it, or start over with another DATA_DIR`,
    )
  }
  if (!existsSync(dir.cluster) || readdirSync(dir.cluster).length === 0) return false
  throw new Error(`${dir.cluster} holds something that is not a Postgres: move it, or use another DATA_DIR`)
}

export function makeCluster(dir: DataDir, binaries: Binaries, launch: Launch): void {
  const work = mkdtempSync(join(dir.path, halfMade))
  const made = join(work, 'cluster')
  const runHere = (program: string, args: string[], input = '') => {
    const { ok, why } = run(launch, binaries, program, args, {
      cwd: dir.path,
      input,
      timeout: setUpMsMax,
    })
    if (!ok) throw new Error(`Postgres could not be set up in ${dir.path}: ${plainly(why, binaries)}`)
  }
  try {
    if (launch.owner !== null) chownSync(work, launch.owner, launch.owner)
    const options = ['--username=postgres', '--auth=reject', '--encoding=UTF8', '--locale=C']
    runHere(binaries.initdb, [`--pgdata=${made}`, ...options, '--no-instructions'])
    const singleUser = ['--single', '-D', made, '-c', 'exit_on_error=on', 'postgres']
    runHere(binaries.postgres, singleUser, roleAndDatabase(dir))
    writeFileSync(join(made, 'pg_hba.conf'), whoMayLogIn)
    if (existsSync(dir.cluster)) rmdirSync(dir.cluster)
    renameSync(made, dir.cluster)
    syncDirectory(dir.path)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

/** initdb runs postgres through a shell, with its path in double quotes. */
const plainly = (why: string, { initdb }: Binaries): string =>
  /needed by initdb but was not found/.test(why) && /["$`]|\\\\/.test(initdb)
    ? `initdb fails if its path has one of " $ \` or \\\\, and it is in ${dirname(initdb)}: install Latchkey elsewhere, or set DATABASE_URL to the address of your own Postgres`
    : why

/**
 * One statement a line, as single-user mode wants them. The password is on disk first: without it
 * the cluster is useless.
 */
function roleAndDatabase({ password: file }: DataDir): string {
  // Letters and digits: it is part of a URL.
  const password = readSecret(file) ?? createSecret(file, randomBytes(24).toString('hex'))
  return `create role latchkey login createdb password '${password}'\ncreate database latchkey owner latchkey\n`
}

/**
 * The files change owner when Postgres runs as another user than before. The directory comes last:
 * it marks the end.
 */
export function handOver(cluster: string, { owner }: Launch): void {
  if (owner === null || lstatSync(cluster).uid === owner) return
  for (const entry of readdirSync(cluster, { recursive: true, encoding: 'utf8' }))
    lchownSync(join(cluster, entry), owner, owner)
  lchownSync(cluster, owner, owner)
}

/**
 * Removes what a killed start left. If its initdb is still writing, the next start removes the rest.
 */
export function removeHalfMade(dir: DataDir): void {
  for (const entry of readdirSync(dir.path).filter((name) => name.startsWith(halfMade))) {
    try {
      rmSync(join(dir.path, entry), { recursive: true, force: true })
    } catch {}
  }
}
