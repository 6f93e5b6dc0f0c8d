/** Stops a process that we started: with SIGTERM, and after ten seconds with SIGKILL. */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'

const stopMsMax = 10_000

export async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  const timer = setTimeout(() => child.kill('SIGKILL'), stopMsMax)
  child.kill('SIGTERM')
  await exited
  clearTimeout(timer)
}
