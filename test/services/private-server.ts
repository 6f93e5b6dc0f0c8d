// A server as a child process: started until it answers; to be killed, frozen, thawed and restarted
// with all its processes.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { lastRelevantLine } from '../../src/embedded/faults.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from './folders.ts'
import { enter, strike } from './ledger.ts'
import { endTree, processTree, send, waitUntilGone } from './processes.ts'
import { endWithRunner } from './run-services.ts'

export interface Launch {
  command: string
  args: string[]
  /** Its working folder: holds its data and its log. */
  folder: string
  /** A word that only its command line has: the ledger finds it by that. */
  mark: string
  env?: NodeJS.ProcessEnv
  as?: { uid?: number; gid?: number }
  ready(pid: number): Promise<boolean>
}

export interface ServerProcess {
  readonly pid: number
  /**
   * SIGKILL (the default) goes to all its processes, as when a machine is lost; other signals go to
   * the first. Resolves once the server has exited. Postgres waits on SIGTERM for its clients to
   * leave; on SIGINT it does not.
   */
  kill(signal?: NodeJS.Signals): Promise<void>
  /** SIGSTOP to all its processes: connections stay open, nothing is answered. */
  freeze(): Promise<void>
  thaw(): Promise<void>
  stop(): Promise<void>
}

export interface PrivateServer extends ServerProcess {
  /** At the same address, with the same data folder. Stops it first if it runs. */
  restart(): Promise<void>
}

const startTimeoutMs = 120_000

export async function launch(options: Launch): Promise<ServerProcess> {
  const { command, args, folder, mark, env = process.env, as, ready } = options
  const logFile = join(folder, 'server.log')
  const log = openSync(logFile, 'a')
  const child = spawn(command, args, { cwd: folder, stdio: ['ignore', log, log], env, ...as })
  closeSync(log)
  await once(child, 'spawn')
  const pid = child.pid!
  enter(pid, folder, mark)
  const hasExited = () => child.exitCode !== null || child.signalCode !== null
  const exited = hasExited() ? Promise.resolve() : once(child, 'exit')
  void exited.then(() => strike(pid))
  const server = controls(pid, hasExited, exited)

  const deadline = Date.now() + startTimeoutMs
  while (!(await ready(pid))) {
    if (!hasExited() && Date.now() < deadline) {
      await pause(10)
      continue
    }
    await server.stop()
    throw new Error(`${command} did not start: ${lastRelevantLine(readFileSync(logFile, 'utf8'))}`)
  }
  return server
}

function controls(pid: number, hasExited: () => boolean, exited: Promise<unknown>): ServerProcess {
  const sendToAll = async (signal: NodeJS.Signals) => {
    if (!hasExited()) send(await processTree(pid), signal)
  }
  return {
    pid,
    async kill(signal = 'SIGKILL') {
      if (hasExited()) return
      const tree = await processTree(pid)
      send(signal === 'SIGKILL' ? tree : [pid], signal)
      await exited
      // Postgres's backends outlive their parent by a moment, and hold its shared memory until
      // then.
      await waitUntilGone(tree, 5000)
    },
    async freeze() {
      if (hasExited()) return
      // The parent first: once stopped, it starts no further process.
      send([pid], 'SIGSTOP')
      await sendToAll('SIGSTOP')
    },
    thaw: () => sendToAll('SIGCONT'),
    async stop() {
      if (hasExited()) return
      await endTree(pid)
      await exited
    },
  }
}

/** A test's own server, in a temporary folder; ends with the test or with the run. */
export async function startPrivateServer(
  t: Test,
  name: string,
  start: (folder: string) => Promise<ServerProcess>,
): Promise<PrivateServer> {
  endWithRunner()
  const folder = await makeTemporaryFolder(name)
  let server: ServerProcess | undefined
  // Registered before the start, because a failed start leaves a folder too.
  t.teardown(async () => {
    await server?.stop()
    await removeTemporaryFolder(folder)
  })
  server = await start(folder)
  return {
    get pid() {
      return server!.pid
    },
    kill: (signal) => server!.kill(signal),
    freeze: () => server!.freeze(),
    thaw: () => server!.thaw(),
    stop: () => server!.stop(),
    async restart() {
      await server!.stop()
      server = await start(folder)
    },
  }
}
