/**
 * One Latchkey at a time looks at a DATA_DIR, sets it up, and starts its Postgres. A file made with O_EXCL names the holder;
 * it is stale when that very process is gone, so a `kill -9` halfway blocks nobody.
 */
import { randomUUID } from 'node:crypto'
import { readFileSync, statSync, unlinkSync, writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { codeOf } from './faults.ts'
import { birthOf, isAlive } from './processes.ts'

// Longer than a first set-up or a recovery takes on a slow disk.
const waitMsMax = 120_000
const lookAgainMs = 20
// Between making the file and writing into it lie microseconds; a file that stays empty belongs to somebody who died there.
const emptyMsMax = 2_000

interface Holder {
  pid: number
  birth: string
  id: string
}

/** Resolves with the way to give it up. Errors of the file system are the caller's to word. */
export async function takeStartLock(path: string): Promise<() => void> {
  const mine: Holder = { pid: process.pid, birth: birthOf(process.pid), id: randomUUID() }
  const giveUpAtMs = Date.now() + waitMsMax
  for (;;) {
    if (make(path, JSON.stringify(mine))) return () => release(path, mine)
    const holder = read(path)
    if (isStale(path, holder)) breakStale(path)
    else if (Date.now() > giveUpAtMs) {
      throw new Error(
        `Another Latchkey (process ${holder?.pid ?? 'unknown'}) has been starting the Postgres of this DATA_DIR for ${waitMsMax / 1000} s: end it, or remove ${path}`,
      )
    } else await pause(lookAgainMs)
  }
}

function make(path: string, content: string): boolean {
  try {
    writeFileSync(path, content, { flag: 'wx', mode: 0o600 })
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false
    // On a full disk an empty file was made and would hold up the next start.
    if (codeOf(error) === 'ENOSPC') remove(path)
    throw error
  }
}

function read(path: string): Holder | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch (error) {
    if (error instanceof SyntaxError || codeOf(error) === 'ENOENT') return null
    throw error
  }
}

function isStale(path: string, holder: Holder | null): boolean {
  if (holder !== null) return !isAlive(holder.pid) || birthOf(holder.pid) !== holder.birth
  return olderThan(path, emptyMsMax)
}

/**
 * Two may find the same stale file, and the slower must not remove what the faster has made since: only who holds the second
 * file removes the first, after another look at it.
 */
function breakStale(path: string): void {
  const breaking = `${path}.breaking`
  if (!make(breaking, '')) {
    if (olderThan(breaking, emptyMsMax)) remove(breaking)
    return
  }
  try {
    if (isStale(path, read(path))) remove(path)
  } finally {
    remove(breaking)
  }
}

function release(path: string, mine: Holder): void {
  if (read(path)?.id === mine.id) remove(path)
}

function olderThan(path: string, ms: number): boolean {
  const made = statSync(path, { throwIfNoEntry: false })
  return made !== undefined && Date.now() - made.mtimeMs > ms
}

function remove(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error
  }
}
