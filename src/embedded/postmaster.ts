/** Starts and stops the Postgres process. Starting is for who holds the start lock. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { closeSync, fstatSync, ftruncateSync, openSync } from 'node:fs'
import { createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { commandOf, type Launch } from './as-unprivileged.ts'
import { type Binaries, findBinaries } from './binaries.ts'
import type { DataDir } from './data-dir.ts'
import { diskFull, fileFault, lastRelevantLine, logSince } from './faults.ts'
import { type Postmaster, readPidFile } from './pid-file.ts'
import { isAlive, killStrays } from './processes.ts'

const logBytesMax = 1024 * 1024
const lookAgainMs = 10
// A recovery after a crash replays at most max_wal_size.
export const startMsMax = 60_000
const straysMsMax = 15_000
const fastStopMsMax = 10_000
const immediateStopMsMax = 5_000

/** On the command line, where they hold over whatever the directory's postgresql.conf says. */
const settings = (port: number): string[] =>
  [
    'listen_addresses=127.0.0.1',
    `port=${port}`,
    // A socket's path may not exceed some 100 bytes, and DATA_DIR may.
    'unix_socket_directories=',
    'max_connections=60',
    'shared_buffers=64MB',
    'max_wal_size=256MB',
    // What was answered to a client is on disk.
    'fsync=on',
    'full_page_writes=on',
    'synchronous_commit=on',
    'timezone=UTC',
    'log_timezone=UTC',
    'logging_collector=off',
    'log_destination=stderr',
    // Failed statements are told to who sent them. In this log they would grow without bound, and quote rows.
    'log_min_messages=log',
    'log_min_error_statement=panic',
    'log_checkpoints=off',
    'max_logical_replication_workers=0',
  ].flatMap((setting) => ['-c', setting])

export interface Started extends Postmaster {
  /** Absent on Windows, where pg_ctl sheds an administrator's rights, starts it and leaves. */
  readonly child: ChildProcess | null
  /** Where in the log this run begins. */
  readonly logOffset: number
}

export async function startPostmaster(dir: DataDir, binaries: Binaries, launch: Launch): Promise<Started> {
  const begunMs = Date.now()
  for (let attempt = 1; ; attempt++) {
    const port = await freePort()
    const outcome = await startOnce(dir, binaries, launch, port)
    if ('pid' in outcome) return outcome
    const { said } = outcome
    // Between finding the port free and listening on it another program may have taken it.
    if (/could not bind|Address already in use/i.test(said) && attempt < 10) continue
    // The backends of a postmaster that was killed leave a moment after it, or never.
    if (
      /pre-existing shared memory block|lock file ".*" already exists/.test(said) &&
      Date.now() - begunMs < straysMsMax
    ) {
      if (Date.now() - begunMs > 1_000) killStrays(dir.cluster)
      await pause(50)
      continue
    }
    if (said.includes('No space left on device')) throw diskFull(dir.path)
    throw new Error(
      `Postgres did not start: ${lastRelevantLine(said) || outcome.ended} (its log is ${dir.log})`,
    )
  }
}

async function startOnce(
  dir: DataDir,
  binaries: Binaries,
  launch: Launch,
  port: number,
): Promise<Started | { said: string; ended: string }> {
  const log = openLog(dir)
  const onWindows = process.platform === 'win32'
  const [file, args] = onWindows
    ? [binaries.pgCtl, ['start', '-W', '-D', dir.cluster, '-l', dir.log, '-o', settings(port).join(' ')]]
    : commandOf(launch, binaries.postgres, ['-D', dir.cluster, ...settings(port)])
  // A session of its own: the terminal's Ctrl-C is for the service, which still has to write when it comes. No pipes: nothing
  // may keep this process running, nor keep its stdout open once it is gone.
  const child = spawn(file, args, {
    ...launch.as,
    cwd: dir.path,
    env: binaries.env,
    detached: true,
    stdio: ['ignore', log.fd, log.fd],
    windowsHide: true,
  })
  closeSync(log.fd)
  child.unref()
  let ended = ''
  child.on('error', (error) => {
    ended = error.message
  })
  child.on('exit', (code, signal) => {
    if (!onWindows || code !== 0) ended = signal ?? `status ${code}`
  })

  const giveUpAtMs = Date.now() + startMsMax
  for (;;) {
    if (ended !== '') return { said: logSince(dir.log, log.offset), ended }
    const postmaster = readPidFile(dir.cluster)
    // unshare and setpriv become Postgres, so the child's id is Postgres's.
    if (postmaster?.ready && postmaster.port === port && (onWindows || postmaster.pid === child.pid)) {
      return { ...postmaster, child: onWindows ? null : child, logOffset: log.offset }
    }
    if (Date.now() > giveUpAtMs) {
      // Left alone: a long recovery goes on, and the next start finds it.
      const why = lastRelevantLine(logSince(dir.log, log.offset))
      throw new Error(`Postgres is not ready after ${startMsMax / 1000} s: ${why} (its log is ${dir.log})`)
    }
    await pause(lookAgainMs)
  }
}

/** Resolves when it is gone, or when nothing more can be done about it. */
export async function stopPostmaster(pid: number, dir: DataDir): Promise<void> {
  if (process.platform === 'win32') {
    // A signal would be its sudden death there.
    const { pgCtl, env } = findBinaries(dir.libraries)
    spawnSync(pgCtl, ['stop', '-m', 'fast', '-D', dir.cluster], { windowsHide: true, env })
    return
  }
  for (const [signal, msMax] of [
    // Fast: it ends its connections, writes everything out and leaves.
    ['SIGINT', fastStopMsMax],
    // Immediate: it leaves as in a crash; the next start recovers.
    ['SIGQUIT', immediateStopMsMax],
  ] as const) {
    try {
      process.kill(pid, signal)
    } catch {
      return
    }
    if (await goneWithin(pid, msMax)) return
  }
}

async function goneWithin(pid: number, ms: number): Promise<boolean> {
  for (const giveUpAtMs = Date.now() + ms; isAlive(pid); await pause(lookAgainMs)) {
    if (Date.now() > giveUpAtMs) return false
  }
  return true
}

/** Opened here and handed on, so that it stays with whom DATA_DIR belongs to. Bounded at each start. */
function openLog(dir: DataDir): { fd: number; offset: number } {
  try {
    const fd = openSync(dir.log, 'a', 0o600)
    if (fstatSync(fd).size > logBytesMax) ftruncateSync(fd)
    return { fd, offset: fstatSync(fd).size }
  } catch (error) {
    throw fileFault(error, dir.path)
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.on('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address ? address.port : 0))
    })
  })
}
