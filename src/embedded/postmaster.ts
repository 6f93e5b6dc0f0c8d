/**
 * Finds, starts and stops the Postgres process of a DATA_DIR. Only the owner of the lock starts and
 * stops it.
 */
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, fstatSync, ftruncateSync, openSync, readFileSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { type Launch, run } from './as-unprivileged.ts'
import { type Binaries, findBinaries } from './binaries.ts'
import type { DataDir } from './data-dir.ts'
import { codeOf, lastRelevantLine, logSince } from './faults.ts'
import { freePort } from './free-port.ts'
import { isAlive, isPostgresOf } from './processes.ts'
import { settings } from './server-settings.ts'

const logBytesMax = 1024 * 1024
// A recovery after a crash replays at most max_wal_size. Backends of a killed Postgres end with
// their statement.
export const startMsMax = 60_000
const onWindows = process.platform === 'win32'

export interface Postmaster {
  readonly pid: number
  readonly port: number
  readonly ready: boolean
}

const pidFile = (cluster: string) => join(cluster, 'postmaster.pid')

/**
 * The Postgres that runs in this directory, by its postmaster.pid: the file may have outlived it.
 */
export function findPostmaster({ cluster }: DataDir): Postmaster | null {
  try {
    // The lines: process id, directory, start, port, socket directory, address, shared memory,
    // state.
    const lines = readFileSync(pidFile(cluster), 'utf8').split('\n')
    const [pid, port] = [Number(lines[0]), Number(lines[3])]
    return isPostgresOf(cluster, pid) ? { pid, port, ready: lines[7]?.trim() === 'ready' } : null
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  }
}

// Asks whether it speaks TLS, which every Postgres answers with one byte.
const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])
const answerMsMax = 5_000

/**
 * Whether it takes connections: one that is being killed may still look alive and even have its
 * port open.
 */
export async function answers({ ready, port }: Postmaster): Promise<boolean> {
  if (!ready) return false
  const socket = connect({ host: '127.0.0.1', port })
  try {
    socket.write(sslRequest)
    await once(socket, 'data', { signal: AbortSignal.timeout(answerMsMax) })
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

// The port was taken by another program since it was found free, or backends of a killed Postgres
// still run.
const transientFailure =
  /could not bind|Address already in use|pre-existing shared memory block|lock file ".*" already exists/i

/** Calls `onProgress` once if it has to wait for an earlier Postgres, whose pid file is gone, to end. */
export async function startPostmaster(
  dir: DataDir,
  binaries: Binaries,
  launch: Launch,
  onProgress: (line: string) => void,
): Promise<Postmaster> {
  // A file that outlived its Postgres may name what is now another process, and Postgres would
  // refuse to start.
  rmSync(pidFile(dir.cluster), { force: true })
  let waits = false
  for (const giveUpAtMs = performance.now() + startMsMax; ; await pause(50)) {
    const failure = start(dir, binaries, launch, await freePort())
    const started = failure === null ? findPostmaster(dir) : null
    if (started) return started
    const output = failure ?? 'it ended at once'
    if (!transientFailure.test(output) || performance.now() > giveUpAtMs)
      throw new Error(`Postgres did not start: ${lastRelevantLine(output)} (its log is ${dir.log})`)
    if (!waits && output.includes('pre-existing shared memory block')) {
      waits = true
      // It notices within a minute that its directory has moved.
      onProgress('Waiting for an earlier Postgres of this DATA_DIR to end')
    }
  }
}

/**
 * What Postgres wrote, if it did not start. It is left running if only the time ran out: then the
 * next start finds it.
 */
function start(dir: DataDir, binaries: Binaries, launch: Launch, port: number): string | null {
  const log = openLog(dir)
  const options = [...settings(port), '-D', dir.cluster].map(quoted).join(' ')
  const args = ['start', '--silent', '--wait', `--timeout=${startMsMax / 1000}`, '-o', options]
  // pg_ctl gives it a session of its own, so that Ctrl-C does not reach it: the service still has
  // something to write.
  const { ok, output } = run(launch, binaries, binaries.pgCtl, onWindows ? [...args, '-l', dir.log] : args, {
    cwd: dir.path,
    // Not as an option: pg_ctl would not quote it for the shell.
    env: { ...binaries.env, PGDATA: dir.cluster },
    stdio: ['ignore', log.fd, 'pipe'],
  })
  closeSync(log.fd)
  return ok ? null : logSince(dir.log, log.offset) || output
}

/** For the shell by which pg_ctl starts Postgres. */
const quoted = (word: string) => (onWindows ? `"${word}"` : `'${word.replaceAll("'", `'\\''`)}'`)

/**
 * Opened here and passed on, so that it belongs to the owner of DATA_DIR. Truncated at a start when
 * it is long.
 */
function openLog(dir: DataDir): { fd: number; offset: number } {
  const fd = openSync(dir.log, 'a', 0o600)
  if (fstatSync(fd).size > logBytesMax) ftruncateSync(fd)
  return { fd, offset: fstatSync(fd).size }
}

// Fast: it ends its connections, writes everything to disk and exits. Immediate: as in a crash; the
// next start recovers.
const stopSignals = [
  ['SIGINT', 10_000],
  ['SIGQUIT', 5_000],
] as const

/**
 * For a process that ends without time to wait: by a second signal, or because its stop took too
 * long. On Windows, where a signal would kill Postgres, it is left to the next start.
 */
export function tellToStop(dir: DataDir): void {
  if (onWindows) return
  try {
    const pid = findPostmaster(dir)?.pid
    if (pid !== undefined) process.kill(pid, stopSignals[0][0])
  } catch {}
}

/**
 * Kills a Postgres whose directory has a new owner. An orderly stop would write to the files and
 * remove the new owner's postmaster.pid.
 */
export function killPostmaster({ pid }: Postmaster): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {}
}

/** Resolves when it is gone, or when nothing more can be done about it. */
export async function stopPostmaster(dir: DataDir): Promise<void> {
  const pid = findPostmaster(dir)?.pid
  if (pid === undefined) return
  if (onWindows) {
    // A signal would kill it there.
    const { pgCtl, env } = findBinaries(dir.libraries)
    spawnSync(pgCtl, ['stop', '-m', 'fast', '-D', dir.cluster], { windowsHide: true, env })
    return
  }
  for (const [signal, msMax] of stopSignals) {
    try {
      process.kill(pid, signal)
    } catch {
      return
    }
    for (const giveUpAtMs = performance.now() + msMax; performance.now() < giveUpAtMs; await pause(10))
      if (!isAlive(pid)) return
  }
}
