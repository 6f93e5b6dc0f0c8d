/**
 * The Postgres that Latchkey starts when it is given none. It lives in DATA_DIR. The Latchkey that
 * owns the lock starts and stops it: the service, or a command with no service running. A command
 * beside a service uses the service's. An owner killed by SIGKILL leaves Postgres running, and the
 * next owner takes it over.
 */
import { existsSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { chooseLaunch } from './as-unprivileged.ts'
import { findBinaries, packageRoot } from './binaries.ts'
import { type DataDir, hasDatabase, noDatabase, openDataDir, requireDatabase } from './data-dir.ts'
import { fileFault, lastRelevantLine, logSince } from './faults.ts'
import { handOver, hasCluster, makeCluster, removeHalfMade } from './initdb.ts'
import {
  isTakenOver,
  keepTouching,
  lockAsCommand,
  lookAgainMs,
  type Owner,
  type Role,
  takeLock,
  unlock,
  watchLock,
} from './lock.ts'
import {
  answers,
  findPostmaster,
  killPostmaster,
  type Postmaster,
  startMsMax,
  startPostmaster,
  stopPostmaster,
  tellToStop,
} from './postmaster.ts'
import { isAlive, pidOf } from './processes.ts'
import { readSecret } from './secret-file.ts'

export interface EmbeddedPostgres {
  /** postgres://latchkey:<password>@127.0.0.1:<port>/latchkey */
  readonly url: string
  /** Resolves with a plain description if Postgres stops by itself. Never rejects. */
  readonly exited: Promise<string>
  /** Stops the server, if this process owns it. Idempotent. */
  stop(): Promise<void>
}

export interface Options {
  /** DATA_DIR, absolute or relative; made (0700) if absent. */
  dataDir: string
  /**
   * There is one `serve` at a time for a DATA_DIR. A `command` waits for another command to end.
   */
  role: Role
  /** Fail if there is no database yet, and leave no folder behind. */
  mustExist?: boolean
  /** Lines for a person to read: during the first set-up, and while something is waited for. */
  onProgress?: (line: string) => void
  /** Ends the wait for another owner of DATA_DIR. */
  signal?: AbortSignal | undefined
}

const exitWatchMs = 250
const endingSignals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const
const killedMsMax = 2_000
/** A stop or a command usually takes less. */
const announcedMs = 1_000
// Longer than a first set-up or a recovery takes on a slow disk.
const waitMsMax = 120_000

export async function openEmbeddedPostgres(options: Options): Promise<EmbeddedPostgres> {
  if (options.mustExist) requireDatabase(options.dataDir)
  // Before a folder is made, or complained about: without the package, a new one is of no use.
  if (!existsSync(options.dataDir)) packageRoot()
  const dir = openDataDir(options.dataDir)
  try {
    const others = await lockOrJoin(dir, options)
    return others ? connection(dir, others, async () => {}) : await own(dir, options)
  } catch (error) {
    throw fileFault(error, dir.path)
  }
}

/**
 * Null once this process owns the lock. Beside a running service, a command gets the service's
 * Postgres instead.
 */
async function lockOrJoin(
  dir: DataDir,
  { role, signal, onProgress = () => {} }: Options,
): Promise<Postmaster | null> {
  const look = watchLock(dir.lock)
  const again = () => pause(lookAgainMs, undefined, signal && { signal })
  let announced = false
  for (const startMs = performance.now(); !takeLock(dir.lock, role); await again()) {
    const owner = look()
    if (owner === null) continue
    const waitedMs = performance.now() - startMs
    if (owner.role === 'serve') {
      // One that was killed a moment ago may not have ended yet.
      if (owner.isAlive && waitedMs > killedMsMax) refuseBeside(owner, dir, role)
      const postmaster = role === 'command' && !owner.isElsewhere ? findPostmaster(dir) : null
      if (postmaster && (await answers(postmaster))) return postmaster
    }
    if (waitedMs > announcedMs && !announced) {
      onProgress(
        `Waiting for another Latchkey (${whereabouts(owner)}) to end, which uses DATA_DIR ${dir.path}`,
      )
      announced = true
    }
    if (waitedMs > waitMsMax)
      throw new Error(
        `Another Latchkey (${whereabouts(owner)}) has been using the Postgres of DATA_DIR ${dir.path} for ${waitMsMax / 1000} s: wait for it, or stop it`,
      )
  }
  return null
}

/** A command can join only a service whose Postgres it can see. */
function refuseBeside(service: Owner, dir: DataDir, role: Role): void {
  const served = `DATA_DIR ${dir.path} is already served by another Latchkey (${whereabouts(service)})`
  if (role === 'serve')
    throw new Error(`${served}: stop that one first, or give this one a DATA_DIR of its own`)
  if (service.isElsewhere) throw new Error(`${served}: run the command there, or stop that one first`)
}

const whereabouts = ({ identity, isElsewhere, host }: Owner) =>
  `process ${pidOf(identity)}${isElsewhere ? ` on ${host}, in another container or on another machine` : ''}`

async function own(dir: DataDir, { mustExist, onProgress = () => {} }: Options): Promise<EmbeddedPostgres> {
  let stopTouching = () => {}
  try {
    stopTouching = keepTouching(dir.lock)
    if (hasDatabase(dir)) readPassword(dir)
    else if (mustExist) throw noDatabase(dir.path)
    const postmaster = await findOrStart(dir, onProgress)
    const atExit = () => (isTakenOver(dir.lock) ? killPostmaster(postmaster) : tellToStop(dir))
    process.once('exit', atExit)
    // A signal ends a process that does not listen to it, without the event above.
    const atSignal = (signal: NodeJS.Signals) => {
      if (process.listenerCount(signal) > 1) return
      process.off(signal, atSignal)
      atExit()
      process.kill(process.pid, signal)
    }
    // The first process of a container exits at a signal: cli.ts.
    if (process.pid !== 1) for (const signal of endingSignals) process.on(signal, atSignal)
    const leave = async () => {
      // A command that comes now must not join a server that is about to stop.
      if (lockAsCommand(dir.lock)) await stopPostmaster(dir)
      else killPostmaster(postmaster)
      process.off('exit', atExit)
      for (const signal of endingSignals) process.off(signal, atSignal)
      stopTouching()
      unlock(dir.lock)
    }
    return connection(dir, postmaster, leave, () => (isTakenOver(dir.lock) ? takenOver(dir) : null))
  } catch (error) {
    stopTouching()
    unlock(dir.lock)
    throw error
  }
}

const takenOver = ({ path }: DataDir) =>
  `Another Latchkey has taken over DATA_DIR ${path}, because this one gave no sign of life for some seconds`

async function findOrStart(dir: DataDir, onProgress: (line: string) => void): Promise<Postmaster> {
  for (
    const giveUpAtMs = performance.now() + startMsMax;
    performance.now() < giveUpAtMs;
    await pause(lookAgainMs)
  ) {
    const found = findPostmaster(dir)
    if (found === null) return start(dir, onProgress)
    if (await answers(found)) return found
  }
  const why = lastRelevantLine(logSince(dir.log, 0))
  throw new Error(
    `The Postgres in ${dir.cluster} neither starts nor stops within ${startMsMax / 1000} s: ${why} (its log is ${dir.log})`,
  )
}

async function start(dir: DataDir, onProgress: (line: string) => void): Promise<Postmaster> {
  const startMs = performance.now()
  const binaries = findBinaries(dir.libraries)
  const { launch, major } = chooseLaunch(binaries, dir)
  removeHalfMade(dir)
  const isNew = !hasCluster(dir, major)
  if (isNew) {
    onProgress(`Setting up a Postgres in ${dir.cluster}`)
    makeCluster(dir, binaries, launch)
  }
  handOver(dir.cluster, launch)
  // The start removes postmaster.pid, which guards the Postgres of another owner.
  if (isTakenOver(dir.lock)) throw new Error(takenOver(dir))
  const postmaster = await startPostmaster(dir, binaries, launch, onProgress)
  if (isNew) {
    onProgress(`Postgres ready in ${((performance.now() - startMs) / 1000).toFixed(1)} s`)
    if (launch.warning) onProgress(launch.warning)
  }
  return postmaster
}

function readPassword(dir: DataDir): string {
  const password = readSecret(dir.password)
  if (password !== null) return password
  throw new Error(`${dir.password} is missing, and without it the data in ${dir.cluster} cannot be opened`)
}

/** `lost`: why the owner must give up a Postgres that still runs. */
function connection(
  dir: DataDir,
  { pid, port }: Postmaster,
  leave: () => Promise<void>,
  lost: () => string | null = () => null,
): EmbeddedPostgres {
  let watch: NodeJS.Timeout
  let left: Promise<void> | undefined
  const stop = () => {
    clearInterval(watch)
    left ??= leave()
    return left
  }
  const exited = new Promise<string>((resolve) => {
    watch = setInterval(() => {
      const why = isAlive(pid) ? lost() : `Postgres (process ${pid}) is gone; its log is ${dir.log}`
      if (why === null) return
      resolve(why)
      // One that has lost its server must not keep another from starting.
      stop().catch(() => {})
    }, exitWatchMs).unref()
  })
  return { url: `postgres://latchkey:${readPassword(dir)}@127.0.0.1:${port}/latchkey`, exited, stop }
}
