/**
 * Sends the items that arrive in one turn of the event loop to a server as one call. A lone item is
 * sent at the end of its own turn, so batching adds no delay. While as many batches as allowed are
 * in flight, further items gather.
 */
import { Overloaded, Unavailable } from '../stores.ts'

export interface BatcherOptions<I, O> {
  /** The server and the purpose, for the error when it does not answer in time. */
  name: string
  /**
   * Resolves to one result for each item, in order. A rejection goes to every item of the batch.
   */
  run: (items: I[]) => Promise<O[]>
  /** Maximum number of items in one batch. */
  batchMax: number
  /** Maximum number of batches in flight at once. */
  inFlightMax: number
  /** Maximum number of items waiting; one more is rejected with Overloaded. */
  queueMax: number
  /** Milliseconds from adding an item until it is given up. */
  timeoutMs: number
  onBatch?: (size: number) => void
  /** Called for each batch with its oldest item's wait, and for each item that was given up unsent. */
  onWait?: ((seconds: number) => void) | undefined
  onShed?: () => void
}

export interface Batcher<I, O> {
  add(item: I): Promise<O>
  /** Resolves when nothing is waiting or in flight any more. */
  drained(): Promise<void>
}

interface Waiting<I, O> {
  item: I
  sinceMs: number
  resolve: (value: O) => void
  reject: (error: unknown) => void
}

export function createBatcher<I, O>(options: BatcherOptions<I, O>): Batcher<I, O> {
  const { name, run, batchMax, inFlightMax, queueMax, timeoutMs, onBatch, onWait, onShed } = options
  let queue: Waiting<I, O>[] = []
  let expiring: NodeJS.Timeout | undefined
  const inFlight = new Set<Waiting<I, O>[]>()
  let scheduled = false
  const onDrained: (() => void)[] = []

  /**
   * Gives up items that have waited too long. One timer, set for the oldest item, serves all of
   * them.
   */
  function expireIn(ms: number) {
    expiring ??= setTimeout(() => {
      expiring = undefined
      const untilMs = performance.now() - timeoutMs + 1
      queue = queue.filter((waiting) => {
        if (!rejectIfLate(waiting, untilMs)) return true
        onWait?.(timeoutMs / 1000)
        return false
      })
      for (const batch of inFlight) for (const waiting of batch) rejectIfLate(waiting, untilMs)
      // In each batch, the oldest item that is not late yet, which need not be the first.
      const oldest = [...inFlight, queue].map((some) => some.find(({ sinceMs }) => sinceMs > untilMs))
      const nextMs = Math.min(...oldest.map((waiting) => waiting?.sinceMs ?? Infinity))
      if (Number.isFinite(nextMs)) expireIn(nextMs - untilMs)
    }, ms)
    expiring.unref()
  }

  function rejectIfLate({ sinceMs, reject }: Waiting<I, O>, untilMs: number) {
    if (sinceMs > untilMs) return false
    reject(new Unavailable(`${name}: no answer in ${timeoutMs} ms`))
    return true
  }

  function schedule() {
    if (scheduled) return
    scheduled = true
    setImmediate(flush)
  }

  function flush() {
    scheduled = false
    while (queue.length > 0 && inFlight.size < inFlightMax) {
      void answer(queue.splice(0, batchMax))
    }
  }

  async function answer(batch: Waiting<I, O>[]) {
    inFlight.add(batch)
    onBatch?.(batch.length)
    onWait?.((performance.now() - batch[0]!.sinceMs) / 1000)
    try {
      const answers = await run(batch.map(({ item }) => item))
      batch.forEach(({ resolve }, i) => {
        resolve(answers[i]!)
      })
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
    inFlight.delete(batch)
    if (inFlight.size === 0 && queue.length === 0) {
      for (const resolve of onDrained.splice(0)) resolve()
    }
    schedule()
  }

  return {
    add(item) {
      if (queue.length >= queueMax) {
        onShed?.()
        return Promise.reject(new Overloaded('too many requests are waiting'))
      }
      return new Promise((resolve, reject) => {
        queue.push({ item, sinceMs: performance.now(), resolve, reject })
        schedule()
        expireIn(timeoutMs)
      })
    },
    drained() {
      if (inFlight.size === 0 && queue.length === 0) return Promise.resolve()
      return new Promise((resolve) => onDrained.push(resolve))
    },
  }
}
