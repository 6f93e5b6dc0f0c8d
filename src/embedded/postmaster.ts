/** Starts and stops the Postgres process. For the holder of the start lock. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { closeSync, fstatSync, ftruncateSync, openSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { commandOf, type Launch } from './as-unprivileged.ts'
import { type Binaries, findBinaries } from './binaries.ts'
import type { DataDir } from './data-dir.ts'
import { diskFull, lastRelevantLine, logSince, saysDiskFull } from './faults.ts'
import { findPostmaster, type Postmaster, readPidFile } from './pid-file.ts'
import { isAlive, killStrays } from './processes.ts'
import { settings } from './server-settings.ts'

const logBytesMax = 1024 * 1024
const lookAgainMs = 10
// A recovery after a crash replays at most max_wal_size.
export const startMsMax = 60_000
const straysMsMax = 15_000
const onWindows = process.platform === 'win32'

export interface Started extends Postmaster {
  /** Null if another process started it, or pg_ctl did (Windows). */
  readonly child: ChildProcess | null
}

export async function startPostmaster(dir: DataDir, binaries: Binaries, launch: Launch): Promise<Started> {
  const begunMs = Date.now()
  for (let attempt = 1; ; attempt++) {
    const outcome = await startOnce(dir, binaries, launch, await freePort())
    if ('pid' in outcome) return outcome
    const { said } = outcome
    // Another program may have taken the port since it was found free.
    if (/could not bind|Address already in use/i.test(said) && attempt < 10) continue
    // The backends of a killed postmaster end a moment after it, or never.
    const isBlocked = /pre-existing shared memory block|lock file ".*" already exists/.test(said)
    if (isBlocked && Date.now() - begunMs < straysMsMax) {
      if (Date.now() - begunMs > 1_000) killStrays(dir.cluster)
      await pause(50)
      continue
    }
    if (saysDiskFull(said)) throw diskFull(dir.path)
    const why = lastRelevantLine(said) || outcome.ended
    throw new Error(`Postgres did not start: ${why} (its log is ${dir.log})`)
  }
}

async function startOnce(
  dir: DataDir,
  binaries: Binaries,
  launch: Launch,
  port: number,
): Promise<Started | { said: string; ended: string }> {
  const log = openLog(dir)
  // pg_ctl drops an administrator's rights, starts it and leaves.
  const [file, args] = onWindows
    ? [binaries.pgCtl, ['start', '-W', '-D', dir.cluster, '-l', dir.log, '-o', settings(port).join(' ')]]
    : commandOf(launch, binaries.postgres, ['-D', dir.cluster, ...settings(port)])
  // A session of its own: on Ctrl-C the service still has something to write. No pipes: nothing may keep this process running,
  // or keep its stdout open once it has ended.
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

  for (const giveUpAtMs = Date.now() + startMsMax; Date.now() < giveUpAtMs; await pause(lookAgainMs)) {
    if (ended !== '') return { said: logSince(dir.log, log.offset), ended }
    const postmaster = readPidFile(dir.cluster)
    // unshare and setpriv become Postgres, so the child's id is Postgres's.
    if (postmaster?.ready && postmaster.port === port && (onWindows || postmaster.pid === child.pid))
      return { ...postmaster, child: onWindows ? null : child }
  }
  // Left running: a long recovery goes on, and the next start finds it.
  const why = lastRelevantLine(logSince(dir.log, log.offset))
  throw new Error(`Postgres is not ready after ${startMsMax / 1000} s: ${why} (its log is ${dir.log})`)
}

// Asks whether it speaks TLS, to which every Postgres answers with one byte.
const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])
const answerMsMax = 5_000

/** Whether it takes connections: one that is being killed may still look alive, and even have its port open. */
export function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port, timeout: answerMsMax }, () => socket.write(sslRequest))
    const end = (answered: boolean) => {
      socket.destroy()
      resolve(answered)
    }
    socket.once('data', () => end(true))
    for (const event of ['error', 'close', 'timeout']) socket.once(event, () => end(false))
  })
}

/** Opened here and passed on, so that it belongs to the owner of DATA_DIR. Cut at a start when it is long. */
function openLog(dir: DataDir): { fd: number; offset: number } {
  const fd = openSync(dir.log, 'a', 0o600)
  if (fstatSync(fd).size > logBytesMax) ftruncateSync(fd)
  return { fd, offset: fstatSync(fd).size }
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

// Fast: it ends its connections, writes everything to disk and exits. Immediate: as in a crash; the next start recovers.
const stopSignals = [
  { signal: 'SIGINT', msMax: 10_000 },
  { signal: 'SIGQUIT', msMax: 5_000 },
] as const

/** Stops any Postgres that runs here. Resolves when it is gone, or when nothing more can be done about it. */
export async function stopPostmaster(dir: DataDir): Promise<void> {
  const pid = findPostmaster(dir.cluster)?.pid
  if (pid === undefined) return
  if (onWindows) {
    // A signal would kill it there.
    const { pgCtl, env } = findBinaries(dir.libraries)
    spawnSync(pgCtl, ['stop', '-m', 'fast', '-D', dir.cluster], { windowsHide: true, env })
    return
  }
  for (const { signal, msMax } of stopSignals) {
    try {
      process.kill(pid, signal)
    } catch {
      return
    }
    for (const giveUpAtMs = Date.now() + msMax; Date.now() < giveUpAtMs; await pause(lookAgainMs))
      if (!isAlive(pid)) return
  }
}
