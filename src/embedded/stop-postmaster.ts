/** Ends the Postgres process, whoever started it. */
import { spawnSync } from 'node:child_process'
import { setTimeout as pause } from 'node:timers/promises'
import { findBinaries } from './binaries.ts'
import type { DataDir } from './data-dir.ts'
import { isAlive } from './processes.ts'

const fastMsMax = 10_000
const immediateMsMax = 5_000
const lookAgainMs = 10

/** Resolves when it is gone, or when nothing more can be done about it. */
export async function stopPostmaster(pid: number, dir: DataDir): Promise<void> {
  if (process.platform === 'win32') {
    // A signal would be its sudden death there.
    const { pgCtl, env } = findBinaries(dir.libraries)
    spawnSync(pgCtl, ['stop', '-m', 'fast', '-D', dir.cluster], { windowsHide: true, env })
    return
  }
  for (const [signal, msMax] of [
    // Fast: it ends its connections, writes everything out and leaves.
    ['SIGINT', fastMsMax],
    // Immediate: it leaves as in a crash; the next start recovers.
    ['SIGQUIT', immediateMsMax],
  ] as const) {
    try {
      process.kill(pid, signal)
    } catch {
      return
    }
    if (await goneWithin(pid, msMax)) return
  }
}

async function goneWithin(pid: number, ms: number): Promise<boolean> {
  for (const giveUpAtMs = Date.now() + ms; isAlive(pid); await pause(lookAgainMs)) {
    if (Date.now() > giveUpAtMs) return false
  }
  return true
}
