/**
 * A connection on which a test writes any bytes it likes, and every response that comes back on it.
 */
import { EventEmitter, once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { Answer } from '../instance.ts'
import { scaled } from '../soak.ts'

export interface WireAnswer extends Answer {
  /** Its bytes, one character of Latin-1 each. */
  raw: string
  /** When its last byte was here, performance.now(). */
  atMs: number
}

export interface Wire {
  readonly socket: Socket
  /** Whole responses so far, in the order of their requests. 100 Continue is not one. */
  readonly answers: WireAnswer[]
  /** What came after them and is no whole, well-formed response. */
  readonly rest: string
  /** Whether the other side has ended the connection. */
  readonly closed: boolean
  /**
   * Resolves once the operating system has the bytes, so that the next write is a piece of its own.
   */
  write(bytes: string): Promise<void>
  /**
   * Resolves once there are that many responses or the connection has ended; rejects when it waits
   * too long.
   */
  answered(count: number): Promise<WireAnswer[]>
  /** The same for the end of the connection. */
  ended(): Promise<WireAnswer[]>
  /**
   * Sends one whole request and takes its response off `answers`. Only for requests one after the
   * other.
   */
  ask(bytes: string): Promise<WireAnswer>
}

/** Only ends a wait for what never comes. */
const patienceMs = scaled(60_000, 10_000)

/**
 * `toHead`: the first request is a HEAD, so its response has no body whatever its Content-Length
 * says.
 */
export function openWire(port: number, { toHead = false, waitMs = patienceMs } = {}): Wire {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  const changes = new EventEmitter()
  const answers: WireAnswer[] = []
  let rest = ''
  let closed = false
  socket.setEncoding('latin1')
  socket.on('data', (piece: unknown) => {
    const atMs = performance.now()
    rest = (rest + piece).replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, '')
    for (let raw = firstAnswer(rest, toHead && answers.length === 0); raw !== null; ) {
      answers.push({ ...parse(raw), atMs })
      rest = rest.slice(raw.length)
      raw = firstAnswer(rest, false)
    }
    changes.emit('change')
  })
  // A reset behind the responses takes nothing from them.
  socket.on('error', () => {})
  socket.on('close', () => {
    closed = true
    changes.emit('change')
  })

  async function waitFor(what: string, holds: () => boolean) {
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(), waitMs)
    try {
      while (!holds()) await once(changes, 'change', late)
    } catch {
      const received = JSON.stringify(answers.map(({ raw }) => raw).join('') + rest)
      throw new Error(`no ${what} within ${waitMs} ms; got ${received.slice(0, 2000)}`)
    } finally {
      clearTimeout(timer)
    }
    return answers
  }
  const write = (bytes: string) =>
    new Promise<void>((resolve) => {
      if (closed) resolve()
      else socket.write(bytes, 'latin1', () => resolve())
    })

  return {
    socket,
    answers,
    get rest() {
      return rest
    },
    get closed() {
      return closed
    },
    write,
    answered: (count) => waitFor(`${count} responses`, () => closed || answers.length >= count),
    ended: () => waitFor('end of the connection', () => closed),
    async ask(bytes) {
      void write(bytes)
      await waitFor('response', () => closed || answers.length > 0)
      const answer = answers.shift()
      if (answer === undefined) throw new Error(`the connection ended without a response; got ${rest}`)
      return answer
    },
  }
}

export const statusesOf = (answers: readonly Answer[]) => answers.map(({ status }) => status)

const headerLine = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t\x20-\x7e]*)$/

/** The bytes of the first response; null while it is incomplete, or if it is malformed. */
function firstAnswer(bytes: string, toHead: boolean): string | null {
  const end = bytes.indexOf('\r\n\r\n')
  const [status = '', ...lines] = bytes.slice(0, Math.max(0, end)).split('\r\n')
  if (!/^HTTP\/1\.1 [1-5][0-9]{2} [A-Za-z -]+$/.test(status)) return null
  const names = lines.map((line) => headerLine.exec(line)?.[1]?.toLowerCase())
  if (names.includes(undefined) || new Set(names).size < names.length) return null
  // A 304 has no body (RFC 9112, 6.3).
  const isNotModified = status.startsWith('HTTP/1.1 304 ')
  const length = isNotModified ? '0' : lines[names.indexOf('content-length')]?.replace(/^.*: ?/, '')
  if (length === undefined || !/^[0-9]+$/.test(length)) return null
  // What the parser refuses has no method, so its response has a body.
  const bodyless = toHead && bytes[end + 4] !== '{'
  const total = end + 4 + (bodyless ? 0 : Number(length))
  return total > bytes.length ? null : bytes.slice(0, total)
}

function parse(raw: string): Omit<WireAnswer, 'atMs'> {
  const end = raw.indexOf('\r\n\r\n')
  const [first, ...lines] = raw.slice(0, end).split('\r\n')
  const headers = new Headers(
    lines.map((line) => headerLine.exec(line)!.slice(1) as [name: string, value: string]),
  )
  const text = Buffer.from(raw.slice(end + 4), 'latin1').toString()
  let body = null
  try {
    body = JSON.parse(text)
  } catch {
    // Not JSON: null, as in `Answer`.
  }
  return { status: Number(first!.split(' ')[1]), headers, text, body, raw }
}
