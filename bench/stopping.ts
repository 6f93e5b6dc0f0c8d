/**
 * When to stop: at Ctrl-C, when the terminal is closed, when nobody reads the output (`| head`), or
 * when npm has ended.
 */
import { stopWithParent } from '../src/commands/stop.ts'

/** Aborted by the first of them. Those that come later change nothing: closing takes some seconds. */
export function stopRequested(say: (line: string) => void): AbortSignal {
  const stopping = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => {
      say('Stopping …')
      stopping.abort()
    })
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => stopping.abort())
  if (process.env.npm_lifecycle_event) stopWithParent(stopping.signal)
  return stopping.signal
}
