/** Bytes sent over a connection of their own, and all that comes back until it is closed. */
import { connect } from 'node:net'
import { scaled } from '../soak.ts'
import { finalReplies, type Reply } from './fuzz-reply.ts'

export interface Exchange {
  /** Those that end a request; 100 Continue is none. */
  readonly replies: readonly Reply[]
  readonly raw: string
  /** From the last byte sent to the first answer, or to the end. */
  readonly tookMs: number
  /** We said that no more would come, before there was an answer: there may be none. */
  readonly gaveUp: boolean
}

export interface Sending {
  /** HEAD has no body, whatever its headers say. */
  readonly toHead: boolean
  /** Whether the request is whole: else it is no fault that the server waits for the rest. */
  readonly whole: boolean
}

/** Answered or closed: the soak holds it to the promise, and a brief run on a busy machine only sees what hangs. */
const answeredInMs = scaled(60_000, 2000)
/** Who waits for the rest of a request is told after this that none will come. */
const patienceMs = 150

export function exchange(port: number, bytes: Buffer, { toHead, whole }: Sending): Promise<Exchange> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = []
    let sentMs = performance.now()
    let answeredMs: number | null = null
    let gaveUp = false
    const received = () => Buffer.concat(pieces).toString('latin1')
    const socket = connect({ host: '127.0.0.1', port, noDelay: true, allowHalfOpen: true })

    const stopSending = () => {
      if (socket.writable && !socket.writableEnded) socket.end()
    }
    const impatience = setTimeout(() => {
      if (whole || answeredMs !== null) return
      gaveUp = true
      stopSending()
    }, patienceMs)
    const bound = setTimeout(
      () => {
        socket.destroy()
        reject(
          new Error(`neither answered nor closed in ${answeredInMs} ms; so far: ${received().slice(0, 500)}`),
        )
      },
      answeredInMs + (whole ? 0 : patienceMs),
    )

    const ended = () => {
      clearTimeout(impatience)
      clearTimeout(bound)
      socket.destroy()
      const raw = received()
      try {
        const replies = finalReplies(raw, toHead)
        resolve({ replies, raw, tookMs: (answeredMs ?? performance.now()) - sentMs, gaveUp })
      } catch (error) {
        reject(error)
      }
    }
    socket.on('data', (piece) => {
      pieces.push(piece)
      if (answeredMs !== null || !isAnswered(received(), toHead)) return
      answeredMs = performance.now()
      // The connection may be kept. It ends once we say so, after whatever else was answered on it.
      stopSending()
    })
    socket.on('end', ended)
    socket.on('close', ended)
    // A reset: by then all is read that will be.
    socket.on('error', () => {})
    socket.write(bytes, () => {
      sentMs = performance.now()
    })
  })
}

function isAnswered(raw: string, toHead: boolean): boolean {
  try {
    return finalReplies(raw, toHead).length > 0
  } catch {
    return false
  }
}
