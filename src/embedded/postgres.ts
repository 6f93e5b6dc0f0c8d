/**
 * The Postgres that Latchkey starts by itself when it is given none. It lives in DATA_DIR, belongs to whichever Latchkey
 * processes use it, and goes when the last of them leaves. Started by one, it may be used and stopped by another: the service
 * may have been killed, or a command may have been there first.
 */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { chooseLaunch } from './as-unprivileged.ts'
import { findBinaries } from './binaries.ts'
import { type Outcome, type Role, type Use, useServer } from './client-lock.ts'
import { type DataDir, openDataDir, pathsIn, readPassword } from './data-dir.ts'
import { watchExit } from './exit-watch.ts'
import { fileFault, lastRelevantLine, logSince } from './faults.ts'
import { handOver, hasCluster, makeCluster, removeHalfMade } from './initdb.ts'
import { findPostmaster, type Postmaster } from './pid-file.ts'
import { type Started, startMsMax, startPostmaster } from './postmaster.ts'
import { whose } from './processes.ts'
import { refusal } from './server-answers.ts'
import { takeStartLock } from './start-lock.ts'
import { stopPostmaster } from './stop-postmaster.ts'

export interface EmbeddedPostgres {
  /** postgres://latchkey:<password>@127.0.0.1:<port>/latchkey */
  readonly url: string
  /** Whether this call initialised a new cluster (first start). */
  readonly created: boolean
  /** Resolves if postgres exits on its own (crash): with a plain description. Never rejects. */
  readonly exited: Promise<string>
  /** Releases it; stops the server unless another Latchkey process still uses it. Idempotent. */
  stop(): Promise<void>
}

export interface Options {
  /** DATA_DIR, absolute or relative; made (0700) if absent. */
  dataDir: string
  /** Only one `serve` at a time for a DATA_DIR; any number of `command`. */
  role: Role
  /** Fail where there is no database yet, and leave no folder behind. */
  mustExist?: boolean
  /** Lines for a person to read, during the first set-up only. */
  onProgress?: (line: string) => void
}

const lookAgainMs = 20

export async function openEmbeddedPostgres({
  dataDir,
  role,
  mustExist = false,
  onProgress = () => {},
}: Options): Promise<EmbeddedPostgres> {
  if (mustExist) requireDatabase(resolve(dataDir))
  const dir = openDataDir(dataDir)
  try {
    // All that look at, set up or start this one do so one after the other; only leaving goes on beside it.
    const release = await takeStartLock(dir.startLock)
    try {
      if (mustExist && !hasDatabase(dir)) throw noDatabase(dir.path)
      return await open(dir, role, onProgress)
    } finally {
      release()
    }
  } catch (error) {
    throw fileFault(error, dir.path)
  }
}

async function open(dir: DataDir, role: Role, onProgress: (line: string) => void): Promise<EmbeddedPostgres> {
  let created = false
  let started: Started | null = null
  let giveUpAtMs = Date.now() + startMsMax
  for (; Date.now() < giveUpAtMs; await pause(lookAgainMs)) {
    let postmaster: Postmaster | null = findPostmaster(dir.cluster)
    const begunMs = Date.now()
    let made = false
    let warning: string | null = null
    if (postmaster === null) {
      ;({ started, made, warning } = await start(dir, onProgress))
      created ||= made
      postmaster = started
      giveUpAtMs = Date.now() + startMsMax
    }
    if (!postmaster.ready) continue

    const entered = await enter(dir, role, postmaster, started)
    if (made && entered) {
      onProgress(`Postgres ready in ${((Date.now() - begunMs) / 1000).toFixed(1)} s`)
      if (warning) onProgress(warning)
    }
    if (entered) return { ...entered, created }
  }
  const why = lastRelevantLine(logSince(dir.log, 0))
  throw new Error(
    `The Postgres in ${dir.cluster} neither starts nor stops within ${startMsMax / 1000} s: ${why} (its log is ${dir.log})`,
  )
}

async function start(
  dir: DataDir,
  onProgress: (line: string) => void,
): Promise<{ started: Started; made: boolean; warning: string | null }> {
  const binaries = findBinaries(dir.libraries)
  const { launch, major } = chooseLaunch(binaries, dir)
  removeHalfMade(dir)
  const made = !hasCluster(dir, major)
  if (made) {
    onProgress(`Setting up a Postgres in ${dir.cluster}`)
    await makeCluster(dir, binaries, launch)
  }
  handOver(dir.cluster, launch)
  return { started: await startPostmaster(dir, binaries, launch), made, warning: launch.warning }
}

const hasDatabase = ({ cluster }: Pick<DataDir, 'cluster'>) => existsSync(join(cluster, 'PG_VERSION'))

/** A look before anything is written. While another Latchkey sets one up, wait for it. */
function requireDatabase(path: string): void {
  const { cluster, startLock } = pathsIn(path)
  if (!hasDatabase({ cluster }) && !existsSync(startLock)) throw noDatabase(path)
}

const noDatabase = (path: string) =>
  new Error(
    `${path} has no database: set DATABASE_URL or DATA_DIR as for the service, or run \`latchkey serve\` first`,
  )

/** Null: it is going, look again. */
async function enter(
  dir: DataDir,
  role: Role,
  { pid, port }: Postmaster,
  started: Started | null,
): Promise<Omit<EmbeddedPostgres, 'created'> | null> {
  const password = readPassword(dir)
  if (password === null)
    throw new Error(`${dir.password} is missing, without which the data in ${dir.cluster} stays closed`)
  const url = `postgres://latchkey:${password}@127.0.0.1:${port}/latchkey`
  const exit = watchExit(dir, pid, started?.pid === pid ? started : null)
  const isUp = () => ['ours', 'unknown'].includes(whose(pid, dir.cluster))
  let outcome: Outcome
  try {
    outcome = await useServer({ url, role, isUp, onGone: exit.seen })
  } catch (error) {
    // Nobody else can have come in meanwhile, and nobody would stop it.
    if (started?.pid === pid) await stopPostmaster(pid, dir)
    throw refusal(error, dir)
  }
  if (!outcome.ok && outcome.reason === 'going') return null

  const { use } = outcome
  let stopped: Promise<void> | undefined
  const stop = () => {
    stopped ??= leave(use, pid, dir)
    exit.disregard()
    return stopped
  }
  if (outcome.ok) return { url, exited: exit.happened, stop }
  await stop()
  throw new Error(
    `DATA_DIR ${dir.path} is already served by another Latchkey (process ${outcome.by}): stop that one first, or give this one a DATA_DIR of its own`,
  )
}

async function leave(use: Use, pid: number, dir: DataDir): Promise<void> {
  if (await use.leave()) await stopPostmaster(pid, dir)
  await use.end()
}
