/** Stops processes that we started. */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'

const stopMsMax = 10_000

/** With SIGTERM, and after ten seconds with SIGKILL. */
export async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  const timer = setTimeout(() => child.kill('SIGKILL'), stopMsMax)
  child.kill('SIGTERM')
  await exited
  clearTimeout(timer)
}

const ours = new Map<ChildProcess, NodeJS.Signals>()
process.once('exit', () => {
  for (const [child, signal] of ours) child.kill(signal)
})

/** However we end, also while the process is only starting, it does not stay behind. */
export function endsWithUs(child: ChildProcess, signal: NodeJS.Signals = 'SIGKILL'): void {
  ours.set(child, signal)
  child.once('exit', () => ours.delete(child))
}
