// Every server a test or the keeper starts is written down with its owner, so that it ends although its owner
// was killed: a keeper (of this run or of the next one) reads the ledger and ends whatever lost its owner.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { isAlive } from '../../src/embedded/processes.ts'
import { removeTemporaryFolder, stateFolder } from './folders.ts'
import { commandLine, endTree } from './processes.ts'

interface Entry {
  pid: number
  owner: number
  folder: string
  /** A word of the server's command line: a pid alone may have gone to a stranger meanwhile. */
  mark: string
}

const fileOf = (pid: number) => join(stateFolder, `server-${pid}.json`)

// Synchronous, so that nothing can come between the start of a server and its entry.
export function enter(pid: number, folder: string, mark: string): void {
  mkdirSync(stateFolder, { recursive: true })
  const entry: Entry = { pid, owner: process.pid, folder, mark }
  writeFileSync(fileOf(pid), JSON.stringify(entry))
}

export function strike(pid: number): void {
  rmSync(fileOf(pid), { force: true })
}

/** Ends servers whose owner is no more. Several keepers may do so at once. */
export async function sweep(): Promise<void> {
  const names = await readdir(stateFolder).catch(() => [])
  const files = names.filter((name) => name.startsWith('server-')).map((name) => join(stateFolder, name))
  await Promise.all(files.map(sweepOne))
}

async function sweepOne(file: string): Promise<void> {
  const entry = await read(file)
  if (!entry || isAlive(entry.owner)) return
  if ((await commandLine(entry.pid)).includes(entry.mark)) await endTree(entry.pid)
  await removeTemporaryFolder(entry.folder)
  await rm(file, { force: true })
}

async function read(file: string): Promise<Entry | null> {
  try {
    return JSON.parse(await readFile(file, 'utf8'))
  } catch {
    return null // being written, or swept by another keeper
  }
}
