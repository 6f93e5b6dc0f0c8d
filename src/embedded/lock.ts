/**
 * One Latchkey at a time owns the Postgres of a DATA_DIR: only the owner sets it up, starts it and
 * stops it. The lock file names the owner. A killed owner leaves its lock behind, and the next
 * Latchkey removes it. Process ids mean nothing in another container or on another machine, so the
 * owner also touches its lock all the time: there, a lock that nobody touches is left behind.
 */
import { randomUUID } from 'node:crypto'
import {
  closeSync,
  fstatSync,
  linkSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { hostname } from 'node:os'
import { Worker } from 'node:worker_threads'
import { codeOf } from './faults.ts'
import { isRunning, ownIdentity, ownPlace } from './processes.ts'

/** For those who wait for a lock. */
export const lookAgainMs = 20
const touchEveryMs = 250
// 5 s, or 20 touches that a slow disk may hold up. Counted in looks, because time also passes for a
// process that is suspended.
const silentLooksMax = 250

export type Role = 'serve' | 'command'

interface Lock {
  role: Role
  /** Starts with its process id. */
  identity: string
  /** Where that process id is valid. */
  place: string
  host: string
  touchedMs: number
}

export interface Owner extends Lock {
  /** In another container or on another machine. */
  isElsewhere: boolean
  /** False if only time can tell. */
  isAlive: boolean
}

/** False if the lock exists. */
export function takeLock(path: string, role: Role): boolean {
  try {
    write(path, role, linkSync)
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false
    throw error
  }
}

/** For the owner: from now on commands wait for it to end. False if it no longer is the owner. */
export function lockAsCommand(path: string): boolean {
  if (isTakenOver(path)) return false
  try {
    write(path, 'command', renameSync)
  } catch {
    // A full disk must not keep the owner from its stop.
  }
  return true
}

/** The content first, then the name: nobody reads a lock that is half written. */
function write(path: string, role: Role, place: (from: string, to: string) => void): void {
  const own = `${path}.${randomUUID()}`
  try {
    writeFileSync(own, `${role} ${ownIdentity()} ${ownPlace()} ${hostname()}`)
    place(own, path)
  } finally {
    rmSync(own, { force: true })
  }
}

/** For the owner; leaves a lock that another owner has taken. */
export function unlock(path: string): void {
  if (!isTakenOver(path)) rmSync(path, { force: true })
}

/**
 * For an owner that was suspended, so that others took it for dead. No lock means the same: another
 * owner has come and gone.
 */
export function isTakenOver(path: string): boolean {
  try {
    const lock = read(path)
    return lock?.identity !== ownIdentity() || lock.place !== ownPlace()
  } catch {
    // A disk that fails for a moment says nothing about the owner.
    return false
  }
}

// In a thread, because a set-up and a start of Postgres block the main one for as long as they take.
const touchScript = `
  const { utimesSync } = require('node:fs')
  const { path, everyMs } = require('node:worker_threads').workerData
  setInterval(() => {
    try {
      utimesSync(path, new Date(), new Date())
    } catch {}
  }, everyMs)`

/** Touches the lock file every `touchEveryMs`, in a thread, until the returned function is called. */
export function keepTouching(path: string): () => void {
  const workerData = { path, everyMs: touchEveryMs }
  // A module that the application preloads, by argument or by NODE_OPTIONS, may fail in a thread.
  const worker = new Worker(touchScript, { eval: true, execArgv: [], env: {}, workerData })
  worker.unref()
  return () => void worker.terminate()
}

/**
 * Returns a function to call every `lookAgainMs`: it finds the owner, or null if there is none, and
 * removes the lock of an owner that was killed.
 */
export function watchLock(path: string): () => Owner | null {
  const breaking = `${path}.breaking`
  const signOf = watchTouches()
  const signOfBreaker = watchTouches()
  return () => {
    const lock = read(path)
    if (lock === null) return null
    const sign = signOf(lock)
    if (sign !== 'dead') return { ...lock, isElsewhere: isElsewhere(lock), isAlive: sign === 'alive' }
    // Two processes may notice this at once, and the slower one must not remove the faster one's new
    // lock. So only the holder of a second lock removes the first, after checking again.
    if (takeLock(breaking, 'command')) {
      const again = read(path)
      if (again !== null && isSame(again, lock)) rmSync(path, { force: true })
      unlock(breaking)
    } else {
      const breaker = read(breaking)
      if (breaker !== null && signOfBreaker(breaker) === 'dead') rmSync(breaking, { force: true })
    }
    return null
  }
}

/** Silent: from elsewhere, and not touched since the last look. */
function watchTouches(): (lock: Lock) => 'alive' | 'silent' | 'dead' {
  let last: Lock | null = null
  let looks = 0
  return (lock) => {
    if (!isElsewhere(lock)) return isRunning(lock.identity) ? 'alive' : 'dead'
    const before = last
    last = lock
    if (before !== null && isSame(before, lock)) return ++looks < silentLooksMax ? 'silent' : 'dead'
    looks = 0
    return before === null ? 'silent' : 'alive'
  }
}

// Only a power cut leaves a lock without a place.
const isElsewhere = ({ place }: Lock) => place !== '' && place !== ownPlace()

const isSame = (one: Lock, other: Lock) =>
  one.identity === other.identity && one.place === other.place && one.touchedMs === other.touchedMs

function read(path: string): Lock | null {
  let fd: number | undefined
  try {
    // NFS asks its server for the time of the last touch only when the file is opened.
    fd = openSync(path, 'r')
    const touchedMs = fstatSync(fd).mtimeMs
    const [role, identity = '', place = '', host = ''] = readFileSync(fd, 'utf8').split(' ')
    return { role: role as Role, identity, place, host, touchedMs }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}
