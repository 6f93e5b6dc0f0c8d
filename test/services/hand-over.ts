// From the keeper to the test files. tap's runner is their parent, so its process id names the file: two runs in one tree do
// not meet.
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isAlive } from '../../src/embedded/processes.ts'
import { stateFolder } from './folders.ts'

export interface HandOver {
  /** In the name of every database of this run. */
  run: string
  postgresUrl: string
  redisUrl: string | null
  redisDatabases: number | null
}

export interface NoServices {
  failed: string
}

const fileOf = (runner: number) => join(stateFolder, `run-${runner}.json`)

/** True for the first who asks in a run: it has the servers started. */
export async function claimHandOver(runner: number): Promise<boolean> {
  await mkdir(stateFolder, { recursive: true })
  return writeFile(`${fileOf(runner)}.claimed`, '', { flag: 'wx' }).then(
    () => true,
    () => false,
  )
}

export async function writeHandOver(runner: number, handOver: HandOver | NoServices): Promise<void> {
  // It may hold a password.
  await writeFile(`${fileOf(runner)}.new`, JSON.stringify(handOver), { mode: 0o600 })
  await rename(`${fileOf(runner)}.new`, fileOf(runner))
}

export async function readHandOver(runner: number): Promise<HandOver | NoServices | null> {
  try {
    return JSON.parse(await readFile(fileOf(runner), 'utf8'))
  } catch {
    return null
  }
}

/** Those of runs whose keeper was killed. */
export async function removeStaleHandOvers(): Promise<void> {
  for (const name of await readdir(stateFolder)) {
    const runner = Number(/^run-(\d+)/.exec(name)?.[1] ?? process.pid)
    if (!isAlive(runner)) await rm(join(stateFolder, name), { force: true })
  }
}

export async function removeHandOver(runner: number): Promise<void> {
  for (const end of ['.claimed', '']) await rm(fileOf(runner) + end, { force: true })
}
