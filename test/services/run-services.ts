// The run's servers: the first test file that asks has them started by a keeper, which outlives it;
// the others find them. The hand-over file is named by the process id of tap's runner, the parent
// of every test file, so that two runs do not meet.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { openSync } from 'node:fs'
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { stateFolder } from './folders.ts'

export interface HandOver {
  /** In the name of every database of this run. */
  run: string
  postgresUrl: string
  redisUrl: string | null
  redisDatabases: number | null
}

const keeper = fileURLToPath(new URL('./keeper.ts', import.meta.url))
const lookEveryMs = 20
const fileOf = (runner: number) => join(stateFolder, `run-${runner}.json`)

export async function runServices(): Promise<HandOver> {
  // The servers end with tap's runner; without one they would stay.
  if (!process.env.TAP) throw new Error('no services: run the tests with `npx tap run`')
  const runner = process.ppid
  await mkdir(stateFolder, { recursive: true })
  // Only the first one can create this file.
  const isFirst = await writeFile(`${fileOf(runner)}.claimed`, '', { flag: 'wx' }).then(
    () => true,
    () => false,
  )
  if (isFirst) await startKeeper(runner)
  for (;;) {
    const handOver = await readHandOver(runner)
    if (handOver && 'failed' in handOver) throw new Error(`no services for the tests: ${handOver.failed}`)
    if (handOver) return handOver
    await pause(lookEveryMs)
  }
}

/** Resolves when it has handed over its servers. */
async function startKeeper(runner: number): Promise<void> {
  const log = join(stateFolder, 'keeper.log')
  const out = openSync(log, 'a')
  // Detached, because Ctrl-C goes to a terminal's whole foreground group. The TypeScript loader is
  // in execArgv.
  const child = spawn(process.execPath, [...process.execArgv, keeper, String(runner)], {
    detached: true,
    // tap would count the keeper's coverage although this run has none.
    env: { ...process.env, _TAPJS_PROCESSINFO_COVERAGE_: '0' },
    stdio: ['ignore', out, out, 'ipc'],
  })
  const ready = once(child, 'message').then(([line]) => String(line))
  const line = await Promise.race([ready, once(child, 'exit').then(() => null)])
  if (line === null) {
    const failed = `their keeper ended; see ${log}`
    if (!(await readHandOver(runner))) await writeHandOver(runner, { failed })
    return
  }
  // On stderr, so that stdout stays TAP.
  console.error(line)
  child.unref()
}

export async function writeHandOver(runner: number, handOver: HandOver | { failed: string }): Promise<void> {
  // It may hold a password.
  await writeFile(`${fileOf(runner)}.new`, JSON.stringify(handOver), { mode: 0o600 })
  await rename(`${fileOf(runner)}.new`, fileOf(runner))
}

const readHandOver = (runner: number): Promise<HandOver | { failed: string } | null> =>
  readFile(fileOf(runner), 'utf8').then(JSON.parse, () => null)

export async function removeHandOver(runner: number): Promise<void> {
  for (const end of ['.claimed', '']) await rm(fileOf(runner) + end, { force: true })
}

let ends = false

/**
 * A test whose runner was killed would otherwise run on, without services or a timeout, and keep
 * its private servers.
 */
export function endWithRunner(): void {
  if (ends) return
  ends = true
  // tap ties every test file to its runner by an IPC channel.
  process.once('disconnect', () => process.exit(1))
}
