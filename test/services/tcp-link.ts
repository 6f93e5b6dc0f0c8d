// One connection through the proxy. Bytes are never lost from within a stream: what is held goes on later, as a network
// does that retransmits, so neither side ever reads half an answer that it could mistake for a whole one.
import type { Socket } from 'node:net'

export interface Link {
  isOpen(): boolean
  hold(): void
  /** Whatever waits goes now, delayed or held. */
  release(): void
  reset(): void
}

export function openLink(
  client: Socket,
  dial: () => Socket,
  { delayMs, closed }: { delayMs: () => number; closed: () => void },
): Link {
  let far: Socket | undefined
  let requests: Pump | undefined
  let answers: Pump | undefined

  const reset = () => {
    requests?.stop()
    answers?.stop()
    client.resetAndDestroy()
    far?.resetAndDestroy()
    closed()
  }
  const closedWhenBothAre = () => {
    if (client.destroyed && far?.destroyed) closed()
  }
  client.on('error', reset)
  client.on('close', closedWhenBothAre)

  return {
    isOpen: () => !client.destroyed && !client.readableEnded,
    hold() {
      requests?.hold()
      answers?.hold()
    },
    release() {
      // Not before: while nothing passes, the far side does not learn of a client either.
      if (!far) {
        far = dial()
        far.on('error', reset)
        far.on('close', closedWhenBothAre)
        requests = pump(client, far, () => 0)
        answers = pump(far, client, delayMs)
      }
      requests?.release()
      answers?.release()
    },
    reset,
  }
}

interface Pump {
  hold(): void
  release(): void
  stop(): void
}

/** Passes on in order what it reads, each piece as late as the delay was when it came; null is the end. */
function pump(from: Socket, to: Socket, delayMs: () => number): Pump {
  let waiting: { piece: Buffer | null; dueMs: number }[] = []
  let held = true
  let timer: NodeJS.Timeout | undefined

  const put = (piece: Buffer | null) => {
    waiting.push({ piece, dueMs: performance.now() + delayMs() })
    pass()
  }
  const pass = () => {
    clearTimeout(timer)
    while (!held && waiting[0]) {
      const { piece, dueMs } = waiting[0]
      const restMs = dueMs - performance.now()
      if (restMs > 0) {
        timer = setTimeout(pass, restMs)
        return
      }
      waiting.shift()
      if (piece) to.write(piece)
      else to.end()
    }
  }
  from.on('data', put)
  from.on('end', () => put(null))
  from.pause()

  return {
    hold() {
      held = true
      from.pause()
    },
    release() {
      held = false
      for (const entry of waiting) entry.dueMs = 0
      from.resume()
      pass()
    },
    stop() {
      held = true
      waiting = []
    },
  }
}
