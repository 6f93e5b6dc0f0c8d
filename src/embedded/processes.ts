/**
 * Other processes. Process ids are reused, soon in a container, so an id alone never identifies a
 * process.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import { childEnv } from './child-env.ts'
import { codeOf } from './faults.ts'

const onLinux = process.platform === 'linux'
const onWindows = process.platform === 'win32'
const bootIdFile = '/proc/sys/kernel/random/boot_id'

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    return codeOf(error) === 'EPERM'
  }
  // A zombie still accepts signals. In a container, the first process often reaps none.
  return statFields(pid)[0] !== 'Z'
}

/** The id and the time of birth, as one word. On Windows the id alone. */
function identityOf(pid: number): string {
  // The 20th field after the name is the start in clock ticks since boot.
  const birth = onLinux ? `${read(bootIdFile)} ${statFields(pid)[19]}` : ps('lstart=', pid)
  return `${pid}-${birth.trim().replaceAll(/\W+/g, '-')}`
}

let identity: string | undefined
let place: string | undefined

export function ownIdentity(): string {
  identity ??= identityOf(process.pid)
  return identity
}

/**
 * Where process ids are those of this process: the boot of the machine and the namespace, as one
 * word. Containers have namespaces of their own.
 */
export function ownPlace(): string {
  place ??= `${bootId().trim() || hostname()}-${pidNamespace()}`.replaceAll(/\W+/g, '-')
  return place
}

function bootId(): string {
  if (onLinux) return read(bootIdFile)
  return onWindows ? '' : output('sysctl', ['-n', 'kern.bootsessionuuid'])
}

function pidNamespace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid')
  } catch {
    return ''
  }
}

export const pidOf = (identity: string) => Number.parseInt(identity, 10)

export const isRunning = (identity: string) =>
  isAlive(pidOf(identity)) && identityOf(pidOf(identity)) === identity

/**
 * Whether this process is the Postgres of this cluster, by its command line (on Windows: a Postgres
 * at all).
 */
export function isPostgresOf(cluster: string, pid: number): boolean {
  if (!isAlive(pid)) return false
  if (onWindows) return output('tasklist', ['/FI', `PID eq ${pid}`, '/NH']).includes('postgres.exe')
  const command = onLinux ? read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ') : ps('command=', pid)
  return `${command.trim()} `.includes(`-D ${cluster} `)
}

/**
 * From the process state on. Before it is the program's name in brackets, which may contain
 * anything.
 */
function statFields(pid: number): string[] {
  const text = onLinux ? read(`/proc/${pid}/stat`) : ''
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}

const ps = (column: string, pid: number) =>
  onWindows ? '' : output('ps', ['-ww', '-o', column, '-p', String(pid)])

const output = (program: string, args: string[]) =>
  spawnSync(program, args, { encoding: 'utf8', env: childEnv(), windowsHide: true }).stdout ?? ''

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
