// What the tests need to know of processes they did not necessarily start: who its children are, what it
// was started as, when it is gone. /proc first: slim container images have no `ps`; macOS has no /proc.
import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { isAlive } from '../../src/embedded/processes.ts'

export const run = promisify(execFile)
const linux = process.platform === 'linux'

/** The words a process was started by (or has since given itself as title); '' when there is no such process. */
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
  for (const parent of tree) for (const [pid, ppid] of parents) if (ppid === parent) tree.push(pid)
  return tree
}

export function send(pids: number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal)
    } catch {} // gone meanwhile: what was asked for, or nothing to ask of
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

/** Ends a server, frozen or not. SIGINT is the quick orderly stop of Postgres and of Redis alike. */
export async function endTree(root: number): Promise<void> {
  const tree = await processTree(root)
  send(tree, 'SIGCONT')
  send([root], 'SIGINT')
  if (await waitUntilGone(tree, 5000)) return
  send([...tree, ...(await processTree(root))], 'SIGKILL')
  await waitUntilGone(tree, 5000)
}

async function parentsFromProc(): Promise<[number, number][]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const rows = await Promise.all(
    pids.map(async (pid): Promise<[number, number]> => {
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
      // The name, in brackets, may hold blanks and brackets: fields are counted from its last one.
      return [Number(pid), Number(stat.slice(stat.lastIndexOf(')') + 1).split(' ')[2])]
    }),
  )
  return rows
}

async function parentsFromPs(): Promise<[number, number][]> {
  const { stdout } = await run('ps', ['-A', '-o', 'pid=,ppid='])
  return stdout
    .trim()
    .split('\n')
    .map((line): [number, number] => {
      const [pid, ppid] = line.trim().split(/\s+/)
      return [Number(pid), Number(ppid)]
    })
}
