// Every server that a test or the keeper starts is written down with its owner. If the owner is
// killed, a keeper (of this run or of the next one) reads the ledger and ends the server.
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
  /** A word of the server's command line: its pid may belong to another process by now. */
  mark: string
}

const fileOf = (pid: number) => join(stateFolder, `server-${pid}.json`)

/** Synchronous, so that nothing can come between the start of a server and its entry. */
export function enter(pid: number, folder: string, mark: string): void {
  mkdirSync(stateFolder, { recursive: true })
  const entry: Entry = { pid, owner: process.pid, folder, mark }
  writeFileSync(fileOf(pid), JSON.stringify(entry))
}

export const strike = (pid: number): void => rmSync(fileOf(pid), { force: true })

/** Ends servers whose owner is gone. Several keepers may do so at once. */
export async function sweep(): Promise<void> {
  const names = await readdir(stateFolder).catch(() => [])
  const files = names.filter((name) => name.startsWith('server-')).map((name) => join(stateFolder, name))
  await Promise.all(files.map(sweepOne))
}

async function sweepOne(file: string): Promise<void> {
  // Null: it is being written, or another keeper has swept it.
  const entry: Entry | null = await readFile(file, 'utf8')
    .then(JSON.parse)
    .catch(() => null)
  if (!entry || isAlive(entry.owner)) return
  if ((await commandLine(entry.pid)).includes(entry.mark)) await endTree(entry.pid)
  await removeTemporaryFolder(entry.folder)
  await rm(file, { force: true })
}
