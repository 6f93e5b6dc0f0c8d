/** Starts the Postgres process. For who holds the start lock. */
import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, fstatSync, ftruncateSync, openSync } from 'node:fs'
import { createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { commandOf, type Launch } from './as-unprivileged.ts'
import type { Binaries } from './binaries.ts'
import type { DataDir } from './data-dir.ts'
import { diskFull, fileFault, lastRelevantLine, logSince, saysDiskFull } from './faults.ts'
import { type Postmaster, readPidFile } from './pid-file.ts'
import { killStrays } from './processes.ts'
import { settings } from './server-settings.ts'

const logBytesMax = 1024 * 1024
const lookAgainMs = 10
// A recovery after a crash replays at most max_wal_size.
export const startMsMax = 60_000
const straysMsMax = 15_000

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
    if (saysDiskFull(said)) throw diskFull(dir.path)
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
