/** Other processes. Ids are reused, soon in a container, so an id alone never identifies a process. */
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
  // A container's first process often reaps nobody: a zombie still takes signals.
  return statFields(pid)[0] !== 'Z'
}

/** The id and the time of birth, as one word. On Windows the id alone. */
export function identityOf(pid: number): string {
  // The 20th field behind the name is the start in clock ticks since boot.
  const birth = onLinux
    ? `${read('/proc/sys/kernel/random/boot_id')} ${statFields(pid)[19]}`
    : ps('lstart=', pid)
  return `${pid}-${birth.trim().replaceAll(/\W+/g, '-')}`
}

export function isRunning(identity: string): boolean {
  const pid = Number.parseInt(identity, 10)
  return isAlive(pid) && identityOf(pid) === identity
}

/** Is this process the Postgres of this (real) directory? */
export function isPostgresOf(cluster: string, pid: number): boolean {
  if (!isAlive(pid)) return false
  if (onWindows)
    return run('tasklist', ['/FI', `PID eq ${pid}`, '/FO', 'CSV', '/NH']).includes('postgres.exe')
  if (!onLinux) return ps('command=', pid).includes(`-D ${cluster}`)
  if (read(`/proc/${pid}/comm`).trim() !== 'postgres') return false
  // The arguments first: in a container even root may not see the working directory of another user's process.
  const argv = read(`/proc/${pid}/cmdline`).split('\0')
  return argv[argv.indexOf('-D') + 1] === cluster || hasWorkingDirectory(pid, cluster)
}

/**
 * Kills what a dead postmaster left behind: a backend in the middle of a long computation does not notice, and its shared
 * memory keeps the next postmaster from starting. Only for the holder of the start lock.
 */
export function killStrays(cluster: string): void {
  if (!onLinux) return
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger)
  for (const pid of pids.filter((pid) => read(`/proc/${pid}/comm`).trim() === 'postgres')) {
    try {
      if (hasWorkingDirectory(pid, cluster)) process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended, or is not ours to end: the next attempt to start will show.
    }
  }
}

/** By inode: the directory may have been moved, or be mounted under another name. */
function hasWorkingDirectory(pid: number, directory: string): boolean {
  try {
    const [theirs, wanted] = [statSync(`/proc/${pid}/cwd`), statSync(directory)]
    return theirs.dev === wanted.dev && theirs.ino === wanted.ino
  } catch {
    return false
  }
}

/** From the state on. Before it stands the program's name in brackets, which may contain anything. */
function statFields(pid: number): string[] {
  const text = onLinux ? read(`/proc/${pid}/stat`) : ''
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}

const ps = (column: string, pid: number) =>
  onWindows ? '' : run('ps', ['-ww', '-o', column, '-p', String(pid)])

const run = (program: string, args: string[]) =>
  spawnSync(program, args, { encoding: 'utf8', env: childEnv(), windowsHide: true }).stdout ?? ''

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
