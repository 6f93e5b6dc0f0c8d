// One keep-alive connection on which requests follow each other, each timed from its first byte to the last of its answer.
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Test } from 'tap'

export interface TimedConnection {
  /** Sends one whole request once the last is answered. Microseconds; throws on another status than this. */
  time(request: Buffer, status: number): Promise<number>
}

const hangingMs = 10_000

/** A bare socket: a client library's own work would be part of every measurement, and of its noise. */
export async function openTimed(t: Test, port: number): Promise<TimedConnection> {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  t.teardown(() => socket.destroy())
  await once(socket, 'connect')
  let pieces: Buffer[] = []
  let onAnswer = (_answer: Buffer, _atNs: bigint) => {}
  let onFault = (_error: Error) => {}

  socket.on('data', (piece) => {
    // Before anything is made of it.
    const atNs = process.hrtime.bigint()
    pieces.push(piece)
    const answer = pieces.length === 1 ? piece : Buffer.concat(pieces)
    if (!isWhole(answer)) return
    pieces = []
    onAnswer(answer, atNs)
  })
  socket.on('error', (error) => onFault(error))
  socket.on('close', () => onFault(new Error('the connection was closed')))
  socket.setTimeout(hangingMs, () => socket.destroy(new Error('no answer')))

  return {
    time(request, status) {
      return new Promise((resolve, reject) => {
        let sentNs = 0n
        onFault = reject
        onAnswer = (answer, atNs) => {
          const given = Number(answer.toString('latin1', 9, 12))
          if (given === status) resolve(Number(atNs - sentNs) / 1000)
          else reject(new Error(`${given} instead of ${status}: ${answer}`))
        }
        sentNs = process.hrtime.bigint()
        socket.write(request)
      })
    },
  }
}

/** Every answer compared here has a Content-Length. */
function isWhole(answer: Buffer): boolean {
  const end = answer.indexOf('\r\n\r\n')
  if (end < 0) return false
  const length = /\r\ncontent-length: ([0-9]+)/i.exec(answer.toString('latin1', 0, end))?.[1]
  if (length === undefined) throw new Error(`an answer without a length: ${answer}`)
  return answer.length >= end + 4 + Number(length)
}

/** A request as bytes, on a connection that stays open. */
export function requestBytes(method: string, path: string, token: string, body = ''): Buffer {
  const framing = body === '' ? [] : ['Content-Type: application/json', `Content-Length: ${body.length}`]
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'Host: latchkey.test',
    `Authorization: Bearer ${token}`,
    ...framing,
  ]
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body}`)
}
