// A server as a child process: started until it answers, and to be killed, frozen and thawed with all its processes.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { lastRelevantLine } from '../../src/embedded/faults.ts'
import { enter, strike } from './ledger.ts'
import { endTree, processTree, send, waitUntilGone } from './processes.ts'

export interface Launch {
  command: string
  args: string[]
  /** Its working folder: holds its data and its log. */
  folder: string
  /** A word of its command line that nobody else's has: the ledger knows it by that. */
  mark: string
  env?: NodeJS.ProcessEnv
  as?: { uid?: number; gid?: number }
  ready(pid: number): Promise<boolean>
}

export interface ServerProcess {
  readonly pid: number
  hasExited(): boolean
  /** SIGKILL goes to all its processes, as when the machine is lost; others to the first. Answers once it has exited. */
  kill(signal: NodeJS.Signals): Promise<void>
  freeze(): Promise<void>
  thaw(): Promise<void>
  stop(): Promise<void>
}

const startTimeoutMs = 120_000

export async function launch(options: Launch): Promise<ServerProcess> {
  const logFile = join(options.folder, 'server.log')
  const log = openSync(logFile, 'a')
  const child = spawn(options.command, options.args, {
    cwd: options.folder,
    stdio: ['ignore', log, log],
    env: options.env ?? process.env,
    ...options.as,
  })
  closeSync(log)
  await once(child, 'spawn')
  const pid = child.pid!
  enter(pid, options.folder, options.mark)

  const hasExited = () => child.exitCode !== null || child.signalCode !== null
  const exited = hasExited() ? Promise.resolve() : once(child, 'exit')
  void exited.then(() => strike(pid))
  const server = controls(pid, hasExited, exited)

  const deadline = Date.now() + startTimeoutMs
  while (!(await options.ready(pid))) {
    if (!hasExited() && Date.now() < deadline) {
      await pause(10)
      continue
    }
    await server.stop()
    throw new Error(`${options.command} did not start: ${lastRelevantLine(readFileSync(logFile, 'utf8'))}`)
  }
  return server
}

function controls(pid: number, hasExited: () => boolean, exited: Promise<unknown>): ServerProcess {
  const toAll = async (signal: NodeJS.Signals) => {
    if (!hasExited()) send(await processTree(pid), signal)
  }
  return {
    pid,
    hasExited,
    async kill(signal) {
      if (hasExited()) return
      const tree = await processTree(pid)
      send(signal === 'SIGKILL' ? tree : [pid], signal)
      await exited
      // Postgres' backends outlive their postmaster by a moment, and hold its memory for that long.
      await waitUntilGone(tree, 5000)
    },
    // Parents first: a stopped postmaster starts no backend that would be missed.
    async freeze() {
      if (hasExited()) return
      send([pid], 'SIGSTOP')
      await toAll('SIGSTOP')
    },
    thaw: () => toAll('SIGCONT'),
    async stop() {
      if (hasExited()) return
      await endTree(pid)
      await exited
    },
  }
}
