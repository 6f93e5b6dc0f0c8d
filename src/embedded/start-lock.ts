/** One Latchkey at a time sets up, starts, joins, leaves or stops the Postgres of a DATA_DIR: the one that made the lock file. */
import { randomUUID } from 'node:crypto'
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { codeOf } from './faults.ts'
import { identityOf, isRunning } from './processes.ts'

// Longer than a first set-up or a recovery takes on a slow disk.
const waitMsMax = 120_000
const lookAgainMs = 20

export async function withStartLock<T>(path: string, work: () => Promise<T>): Promise<T> {
  for (const giveUpAtMs = Date.now() + waitMsMax; !make(path); await pause(lookAgainMs)) {
    const holder = read(path)
    if (holder === null) continue
    if (!isRunning(holder)) breakStale(path)
    else if (Date.now() > giveUpAtMs)
      throw new Error(
        `Another Latchkey (process ${Number.parseInt(holder, 10)}) has been starting the Postgres of this DATA_DIR for ${waitMsMax / 1000} s: end it, or remove ${path}`,
      )
  }
  try {
    return await work()
  } finally {
    rmSync(path, { force: true })
  }
}

/** False when it exists. Linked into place, so that nobody sees it without its content. */
function make(path: string): boolean {
  const own = `${path}.${randomUUID()}`
  try {
    writeFileSync(own, identityOf(process.pid))
    linkSync(own, path)
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false
    throw error
  } finally {
    rmSync(own, { force: true })
  }
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  }
}

/**
 * Its holder was killed. Two may find that out, and the slower one must not remove what the faster one has made since: only
 * the holder of a second file removes the first, after another look.
 */
function breakStale(path: string): void {
  const breaking = `${path}.breaking`
  const mine = make(breaking)
  const stale = mine ? path : breaking
  const holder = read(stale)
  if (holder !== null && !isRunning(holder)) rmSync(stale, { force: true })
  if (mine) rmSync(breaking, { force: true })
}
