/**
 * The Postgres that Latchkey starts itself when it is given none. It lives in DATA_DIR, is shared by all Latchkey processes that use
 * it, and stops with the last of them. One process may start it and another stop it: the service may have been killed, or a
 * command may have come first.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { chooseLaunch } from './as-unprivileged.ts'
import { findBinaries } from './binaries.ts'
import { type DataDir, hasDatabase, noDatabase, openDataDir, requireDatabase } from './data-dir.ts'
import { fileFault, lastRelevantLine, logSince } from './faults.ts'
import { handOver, hasCluster, makeCluster, removeHalfMade } from './initdb.ts'
import { findPostmaster } from './pid-file.ts'
import { answers, type Started, startMsMax, startPostmaster, stopPostmaster } from './postmaster.ts'
import { isAlive } from './processes.ts'
import { readSecret } from './secret-file.ts'
import { withStartLock } from './start-lock.ts'
import { addUser, type Role, type User, usersOf } from './users.ts'

export interface EmbeddedPostgres {
  /** postgres://latchkey:<password>@127.0.0.1:<port>/latchkey */
  readonly url: string
  /** Whether this call initialised a new cluster (first start). */
  readonly created: boolean
  /** Resolves with a plain description if Postgres stops by itself. Never rejects. */
  readonly exited: Promise<string>
  /** Leaves it, and stops the server unless another Latchkey process still uses it. Idempotent. */
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
const exitWatchMs = 250
const killedMsMax = 2_000

export async function openEmbeddedPostgres(options: Options): Promise<EmbeddedPostgres> {
  if (options.mustExist) requireDatabase(options.dataDir)
  const dir = openDataDir(options.dataDir)
  return locked(dir, () => open(dir, options))
}

/** All that look at, set up, start or stop this Postgres do so one after the other. */
async function locked<T>(dir: DataDir, work: () => Promise<T>): Promise<T> {
  try {
    return await withStartLock(dir.startLock, work)
  } catch (error) {
    throw fileFault(error, dir.path)
  }
}

async function open(
  dir: DataDir,
  { role, mustExist = false, onProgress = () => {} }: Options,
): Promise<EmbeddedPostgres> {
  if (mustExist && !hasDatabase(dir)) throw noDatabase(dir.path)
  const service = role === 'serve' ? await anotherService(dir) : undefined
  if (service) {
    throw new Error(
      `DATA_DIR ${dir.path} is already served by another Latchkey (process ${service.pid}): stop that one first, or give this one a DATA_DIR of its own`,
    )
  }
  const created = !hasDatabase(dir)
  const { pid, port, child } = await findOrStart(dir, onProgress)
  try {
    const password = readSecret(dir.password)
    if (password === null)
      throw new Error(`${dir.password} is missing, and nothing else opens the data in ${dir.cluster}`)
    const removeUser = addUser(dir.path, role)
    const exit = watchExit(dir, pid, child)
    // One that has lost its server must not keep another from starting.
    exit.happened.then(removeUser)
    const leave = async () => {
      removeUser()
      await stopUnlessUsed(dir)
    }
    let left: Promise<void> | undefined
    const stop = () => {
      exit.ignore()
      left ??= locked(dir, leave)
      return left
    }
    return {
      url: `postgres://latchkey:${password}@127.0.0.1:${port}/latchkey`,
      created,
      exited: exit.happened,
      stop,
    }
  } catch (error) {
    await stopUnlessUsed(dir)
    throw error
  }
}

/** One that was killed a moment ago may not have ended yet. */
async function anotherService(dir: DataDir): Promise<User | undefined> {
  for (const giveUpAtMs = Date.now() + killedMsMax; ; await pause(lookAgainMs)) {
    const service = usersOf(dir.path).find(({ role }) => role === 'serve')
    if (service === undefined || Date.now() > giveUpAtMs) return service
  }
}

async function stopUnlessUsed(dir: DataDir): Promise<void> {
  if (usersOf(dir.path).length === 0) await stopPostmaster(dir)
}

async function findOrStart(dir: DataDir, onProgress: (line: string) => void): Promise<Started> {
  for (const giveUpAtMs = Date.now() + startMsMax; Date.now() < giveUpAtMs; await pause(lookAgainMs)) {
    const found = findPostmaster(dir.cluster)
    if (found === null) return start(dir, onProgress)
    if (found.ready && (await answers(found.port))) return { ...found, child: null }
  }
  const why = lastRelevantLine(logSince(dir.log, 0))
  throw new Error(
    `The Postgres in ${dir.cluster} neither starts nor stops within ${startMsMax / 1000} s: ${why} (its log is ${dir.log})`,
  )
}

async function start(dir: DataDir, onProgress: (line: string) => void): Promise<Started> {
  const begunMs = Date.now()
  const binaries = findBinaries(dir.libraries)
  const { launch, major } = chooseLaunch(binaries, dir)
  removeHalfMade(dir)
  const isNew = !hasCluster(dir, major)
  if (isNew) {
    onProgress(`Setting up a Postgres in ${dir.cluster}`)
    makeCluster(dir, binaries, launch)
  }
  handOver(dir.cluster, launch)
  const started = await startPostmaster(dir, binaries, launch)
  if (isNew) {
    onProgress(`Postgres ready in ${((Date.now() - begunMs) / 1000).toFixed(1)} s`)
    if (launch.warning) onProgress(launch.warning)
  }
  return started
}

function watchExit(dir: DataDir, pid: number, child: Started['child']) {
  let tell = (_how: string): void => {}
  const happened = new Promise<string>((resolve) => {
    tell = (how) => resolve(`Postgres (process ${pid}) ${how}; its log is ${dir.log}`)
  })
  const onExit = (code: number | null, signal: string | null) =>
    tell(signal === null ? `ended with status ${code}` : `was ended by ${signal}`)
  child?.once('exit', onExit)
  const watch = setInterval(() => {
    if (child === null && !isAlive(pid)) tell('is gone')
  }, exitWatchMs)
  watch.unref()
  const ignore = () => {
    child?.off('exit', onExit)
    clearInterval(watch)
  }
  happened.then(() => clearInterval(watch))
  return { happened, ignore }
}
