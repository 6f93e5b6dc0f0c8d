/**
 * What can be learnt about another process by its id. Ids are used again, soon in a container, so an id alone never says
 * that a process is the one that is meant.
 */
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { childEnv } from './child-env.ts'
import { codeOf } from './faults.ts'

const onLinux = process.platform === 'linux'
const onWindows = process.platform === 'win32'

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    return codeOf(error) === 'EPERM'
  }
  // A container's first process often reaps nobody: a zombie answers signals and is dead all the same.
  return stat(pid)?.state !== 'Z'
}

/** Differs between two processes that bear the same id one after the other. Empty where it cannot be told. */
export function birthOf(pid: number): string {
  if (onWindows) return ''
  if (!onLinux) return ps('lstart=', pid) ?? ''
  const started = stat(pid)?.started
  return started === undefined ? '' : `${read('/proc/sys/kernel/random/boot_id').trim()} ${started}`
}

/** `unknown`: there is such a process, and what it is cannot be seen. */
export type Whose = 'ours' | 'other' | 'gone' | 'unknown'

/** Is this process the Postgres of this (real) directory? */
export function whose(pid: number, cluster: string): Whose {
  if (!isAlive(pid)) return 'gone'
  if (onLinux) return whoseOnLinux(pid, cluster)
  if (onWindows) {
    const { stdout, status } = spawnSync('tasklist', ['/FI', `PID eq ${pid}`, '/FO', 'CSV', '/NH'], {
      encoding: 'utf8',
      windowsHide: true,
      env: childEnv(),
    })
    if (status !== 0) return 'unknown'
    return stdout.includes('postgres.exe') ? 'ours' : 'other'
  }
  const command = ps('command=', pid)
  if (command === null) return isAlive(pid) ? 'unknown' : 'gone'
  return command.includes(`-D ${cluster}`) ? 'ours' : 'other'
}

/**
 * Kills what a dead postmaster left behind in this directory: a backend in the middle of a long computation does not notice,
 * and holds on to the shared memory that keeps the next postmaster from starting. Only for who holds the start lock.
 */
export function killStrays(cluster: string): void {
  if (!onLinux) return
  for (const entry of readdirSync('/proc')) {
    const pid = Number(entry)
    if (!Number.isInteger(pid) || read(`/proc/${entry}/comm`).trim() !== 'postgres') continue
    if (!hasWorkingDirectory(pid, cluster)) continue
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It went by itself, or is not ours to end: the next attempt to start tells.
    }
  }
}

function whoseOnLinux(pid: number, cluster: string): Whose {
  let argv: string[]
  try {
    if (readFileSync(`/proc/${pid}/comm`, 'utf8').trim() !== 'postgres') return 'other'
    argv = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    // /proc may be mounted so that other users' processes do not show.
    return isAlive(pid) ? 'unknown' : 'gone'
  }
  // The command line first: in a container even root may not look at the working directory of somebody else's process.
  if (argv[argv.indexOf('-D') + 1] === cluster) return 'ours'
  return hasWorkingDirectory(pid, cluster) ? 'ours' : 'other'
}

/** By inode, since the directory may be mounted, or have been moved, under another name. */
function hasWorkingDirectory(pid: number, directory: string): boolean {
  try {
    const [theirs, wanted] = [statSync(`/proc/${pid}/cwd`), statSync(directory)]
    return theirs.dev === wanted.dev && theirs.ino === wanted.ino
  } catch {
    return false
  }
}

function stat(pid: number): { state: string; started: string } | null {
  const text = onLinux ? read(`/proc/${pid}/stat`) : ''
  // The second field is the program's name in brackets, which may hold anything; the others are counted from behind it.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return fields.length < 20 ? null : { state: fields[0]!, started: fields[19]! }
}

function ps(column: string, pid: number): string | null {
  const { stdout, status } = spawnSync('ps', ['-ww', '-o', column, '-p', String(pid)], {
    encoding: 'utf8',
    env: childEnv(),
  })
  return status === 0 && stdout.trim() !== '' ? stdout.trim() : null
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
