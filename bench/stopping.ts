/** When to stop: at Ctrl-C, when the terminal is closed, or when nobody reads the output (`| head`). */

/** Aborted by the first of them. Those that come later change nothing: closing takes some seconds. */
export function stopRequested(say: (line: string) => void): AbortSignal {
  const stopping = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => {
      say('Stopping …')
      stopping.abort()
    })
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => stopping.abort())
  return stopping.signal
}
