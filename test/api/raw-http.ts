/**
 * Requests as bytes and answers as bytes: what `fetch` would refuse to send, and what it hides of
 * an answer.
 */
import { connect } from 'node:net'
import type { Answer } from '../instance.ts'

export interface RawAnswer extends Answer {
  /** Everything that came before the server closed. */
  raw: string
  /** The same with what may differ between uniform answers masked: the request's id, the date. */
  uniform: string
}

const timeoutMs = 60_000

/** The server must close, so ask it to: `Connection: close`. Rejects when it neither answers nor closes. */
export function sendBytes(port: number, bytes: string | Buffer): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = []
    const socket = connect({ host: '127.0.0.1', port })
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error('the server neither answered nor closed')))
    socket.on('data', (piece) => pieces.push(piece))
    // A reset after the answer takes nothing from the answer.
    socket.on('error', (error) => (pieces.length === 0 ? reject(error) : undefined))
    socket.on('close', () => resolve(parse(Buffer.concat(pieces).toString())))
    // Not `end`: a client that half-closes is another case.
    socket.write(bytes)
  })
}

/** One request; a header given twice is sent twice. Values are sent as Latin-1, which HTTP is. */
export function sendRaw(
  port: number,
  method: string,
  target: string,
  headers: string[] = [],
  body: string | Buffer = '',
): Promise<RawAnswer> {
  const framing = body.length > 0 ? [`Content-Length: ${Buffer.byteLength(body)}`] : []
  const lines = [
    `${method} ${target} HTTP/1.1`,
    'Host: latchkey.test',
    'Connection: close',
    ...framing,
    ...headers,
  ]
  return sendBytes(
    port,
    Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), Buffer.from(body)]),
  )
}

function parse(raw: string): RawAnswer {
  const end = raw.indexOf('\r\n\r\n')
  const [statusLine = '', ...lines] = raw.slice(0, Math.max(end, 0)).split('\r\n')
  const headers = new Headers()
  for (const line of lines)
    headers.append(line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim())
  const text = end < 0 ? '' : raw.slice(end + 4)
  let body = null
  try {
    body = JSON.parse(text)
  } catch {
    // Not JSON: null, as the harness has it.
  }
  const uniform = raw.replace(/req_[0-9A-Za-z]+/g, 'req_…').replace(/^date: .*$/im, 'date: …')
  return { status: Number(statusLine.split(' ')[1] ?? 0), headers, text, body, raw, uniform }
}
