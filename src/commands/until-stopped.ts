/** For commands that Ctrl-C ends: aborted by it, by SIGTERM, or when nobody reads the output any more. */
export function untilStopped(): AbortSignal {
  const stopping = new AbortController()
  const stop = () => stopping.abort()
  process.once('SIGINT', stop).once('SIGTERM', stop)
  process.stdout.once('error', stop)
  return stopping.signal
}

/** Does not wait at the signal for a read in hand: that waits as long as the servers do. */
export function orStopped(work: Promise<void>, stopped: AbortSignal): Promise<void> {
  const ended = new Promise<void>((resolve) => stopped.addEventListener('abort', () => resolve()))
  return Promise.race([work, ended])
}
