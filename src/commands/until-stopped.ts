/** For commands that Ctrl-C ends: aborted by it, by SIGTERM, or when nobody reads the output any more. */
export function untilStopped(): AbortSignal {
  const stopping = new AbortController()
  const stop = () => stopping.abort()
  process.once('SIGINT', stop).once('SIGTERM', stop)
  process.stdout.once('error', stop)
  return stopping.signal
}
