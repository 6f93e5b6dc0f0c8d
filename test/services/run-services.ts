// The run's servers: the first test file that asks has them started, by a keeper that outlives it; the others find them.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { stateFolder } from './folders.ts'
import { claimHandOver, type HandOver, readHandOver, writeHandOver } from './hand-over.ts'

const keeper = fileURLToPath(new URL('./keeper.ts', import.meta.url))
const lookEveryMs = 20

export async function runServices(): Promise<HandOver> {
  // tap's runner ends the servers by ending itself; without it they would stay.
  if (!process.env.TAP) throw new Error('no services: run the tests by `npx tap run`')
  const runner = process.ppid
  if (await claimHandOver(runner)) await startKeeper(runner)
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
  mkdirSync(stateFolder, { recursive: true })
  const out = openSync(log, 'a')
  // Detached: Ctrl-C goes to a terminal's whole foreground group, and the keeper has to outlive it. The same execArgv: the
  // TypeScript loader is in it.
  const child = spawn(process.execPath, [...process.execArgv, keeper, String(runner)], {
    detached: true,
    // tap's processinfo would count the keeper's coverage although the run has none.
    env: { ...process.env, _TAPJS_PROCESSINFO_COVERAGE_: '0' },
    stdio: ['ignore', out, out, 'ipc'],
  })
  const ready = once(child, 'message').then(([line]) => String(line))
  const ended = once(child, 'exit').then(() => null)
  const line = await Promise.race([ready, ended])
  if (line === null) {
    const handOver = await readHandOver(runner)
    if (!handOver) await writeHandOver(runner, { failed: `their keeper ended; see ${log}` })
    return
  }
  // On stderr, so that TAP on stdout stays TAP.
  console.error(line)
  child.unref()
}
