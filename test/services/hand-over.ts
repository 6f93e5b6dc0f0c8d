// From the `before` script to the test files. tap's runner is the parent of both, so its process id names the file: two
// runs in one tree do not meet.
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isAlive } from '../../src/embedded/processes.ts'
import { stateFolder } from './folders.ts'

export interface HandOver {
  /** In the name of every database of this run. */
  run: string
  /** Process id of who keeps the servers. */
  keeper: number
  postgresUrl: string
  redisUrl: string | null
  redisDatabases: number | null
}

const fileOf = (runner: number) => join(stateFolder, `run-${runner}.json`)

export async function writeHandOver(runner: number, handOver: HandOver): Promise<void> {
  await mkdir(stateFolder, { recursive: true })
  // It may hold a password.
  await writeFile(`${fileOf(runner)}.new`, JSON.stringify(handOver), { mode: 0o600 })
  await rename(`${fileOf(runner)}.new`, fileOf(runner))
}

export async function readHandOver(runner: number): Promise<HandOver | null> {
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

export const removeHandOver = (runner: number) => rm(fileOf(runner), { force: true })
