/** Waits for a reply with a time limit that is fair to the server. */
import { Unavailable } from '../stores.ts'

/**
 * How long a request waits for Redis, which usually answers within a millisecond. After that, the
 * server counts as down.
 */
export const answerTimeoutMs = 100

/**
 * Resolves to the reply, or rejects with Unavailable after `timeoutMs`. Time in which this process
 * itself was busy does not count: the reply may lie unread in the socket, so it gets one more turn
 * of the event loop, and a little longer after a long pause.
 */
export function withTimeout<T>(sent: Promise<T>, timeoutMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout
    const giveUp = () => reject(new Unavailable(`no answer in ${timeoutMs} ms`))
    const wait = (ms: number, patience: number) => {
      const dueMs = performance.now() + ms
      timer = setTimeout(() => {
        const paused = performance.now() - dueMs > 20
        if (paused && patience > 0) wait(timeoutMs / 2, patience - 1)
        else setImmediate(giveUp)
      }, ms)
    }
    wait(timeoutMs, 2)
    sent.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
