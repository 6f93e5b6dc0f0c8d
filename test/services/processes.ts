// Processes that a test may not have started itself. /proc first, because slim container images
// have no `ps`; macOS has no /proc.
import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { isAlive } from '../../src/embedded/processes.ts'

export const run = promisify(execFile)
const linux = process.platform === 'linux'

/** The words it was started with, or its title since; '' if there is no such process. */
export async function commandLine(pid: number): Promise<string> {
  try {
    if (linux) return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ')
    return (await run('ps', ['-ww', '-o', 'args=', '-p', String(pid)])).stdout
  } catch {
    return ''
  }
}

/** The process and everything below it, parents first. */
export async function processTree(root: number): Promise<number[]> {
  const parents = linux ? await parentsFromProc() : await parentsFromPs()
  const tree = [root]
  for (const parent of tree) for (const [pid, ppid] of parents) if (ppid === parent) tree.push(pid!)
  return tree
}

async function parentsFromProc(): Promise<number[][]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  return Promise.all(
    pids.map(async (pid) => {
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
      // The name, in brackets, may itself hold blanks and brackets: count the fields from its last
      // one.
      return [Number(pid), Number(stat.slice(stat.lastIndexOf(')') + 1).split(' ')[2])]
    }),
  )
}

async function parentsFromPs(): Promise<number[][]> {
  const { stdout } = await run('ps', ['-A', '-o', 'pid=,ppid='])
  return stdout
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number))
}

export function send(pids: number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal)
    } catch {} // already gone
  }
}

export async function waitUntilGone(pids: number[], timeoutMs: number): Promise<boolean> {
  const deadline = Date.now() + timeoutMs
  while (pids.some(isAlive)) {
    if (Date.now() > deadline) return false
    await pause(10)
  }
  return true
}

/**
 * Ends a server, frozen or not. SIGINT is the fast orderly stop of Postgres, Redis and the load
 * balancers alike.
 */
export async function endTree(root: number): Promise<void> {
  const tree = await processTree(root)
  send(tree, 'SIGCONT')
  send([root], 'SIGINT')
  if (await waitUntilGone(tree, 5000)) return
  send([...tree, ...(await processTree(root))], 'SIGKILL')
  await waitUntilGone(tree, 5000)
}
