/** A connection on which a test writes bytes as it likes, and everything that comes back on it. */
import { connect, type Socket } from 'node:net'
import type { Answer } from '../instance.ts'

export interface Wire {
  /** Whole answers so far, in their order; those of one connection belong to its requests in theirs. */
  readonly answers: Answer[]
  /** What came after them, and is no whole answer. */
  readonly rest: string
  /** Whether the other side has ended the connection. */
  readonly closed: boolean
  readonly socket: Socket
  write(bytes: string): void
  /** Writes, and resolves once it is with the operating system: what follows is a piece of its own. */
  written(bytes: string): Promise<void>
  /** Resolves once there are so many answers, or the connection has ended; throws when neither happens. */
  answered(count: number): Promise<Answer[]>
  /** Resolves once the other side has ended the connection; throws when it does not. */
  ended(): Promise<Answer[]>
  /** Goes away without a word. */
  drop(): void
}

const patienceMs = 60_000

export function openWire(port: number): Wire {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  let raw = ''
  let closed = false
  let look = () => {}
  let read = { answers: [] as Answer[], rest: '' }
  socket.setEncoding('latin1')
  socket.on('data', (piece: unknown) => {
    raw += piece
    read = split(raw)
    look()
  })
  // A reset after the answers takes nothing from them.
  socket.on('error', () => {})
  socket.on('close', () => {
    closed = true
    look()
  })

  function waitFor(what: string, isSo: () => boolean): Promise<Answer[]> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`waited ${patienceMs} ms in vain for ${what}; got ${JSON.stringify(raw)}`)),
        patienceMs,
      )
      look = () => {
        if (!isSo()) return
        clearTimeout(timer)
        look = () => {}
        resolve(read.answers)
      }
      look()
    })
  }

  const send = (bytes: string) =>
    new Promise<void>((resolve) => {
      if (closed) resolve()
      else socket.write(bytes, 'latin1', () => resolve())
    })

  return {
    socket,
    get answers() {
      return read.answers
    },
    get rest() {
      return read.rest
    },
    get closed() {
      return closed
    },
    write: (bytes) => void send(bytes),
    written: send,
    answered: (count) => waitFor(`${count} answers`, () => closed || read.answers.length >= count),
    ended: () => waitFor('the end of the connection', () => closed),
    drop: () => socket.destroy(),
  }
}

/** Answers one after the other, each as long as its Content-Length says. */
function split(raw: string): { answers: Answer[]; rest: string } {
  const answers: Answer[] = []
  let rest = raw
  for (;;) {
    const end = rest.indexOf('\r\n\r\n')
    if (end < 0) return { answers, rest }
    const [first = '', ...lines] = rest.slice(0, end).split('\r\n')
    const status = Number(/^HTTP\/1\.1 ([0-9]{3}) /.exec(first)?.[1])
    if (Number.isNaN(status)) return { answers, rest }
    const headers = new Headers(
      lines.map((line): [string, string] => [
        line.slice(0, line.indexOf(':')),
        line.slice(line.indexOf(':') + 1).trim(),
      ]),
    )
    const next = end + 4 + Number(headers.get('content-length') ?? 0)
    if (next > rest.length) return { answers, rest }
    const text = Buffer.from(rest.slice(end + 4, next), 'latin1').toString()
    const isJson = headers.get('content-type')?.startsWith('application/json') ?? false
    answers.push({ status, headers, text, body: isJson ? JSON.parse(text) : null })
    rest = rest.slice(next)
  }
}
