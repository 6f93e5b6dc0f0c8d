/**
 * The log: JSON lines, or readable ones on a terminal. Never given an Authorization header, a body
 * or a query string.
 */
import cluster from 'node:cluster'
import { constants, fstatSync, openSync } from 'node:fs'
import { pino } from 'pino'
import { printable } from '../rules/printable.ts'

/** Bytes buffered for a reader that has stopped reading. More are dropped. */
const bufferMax = 8 << 20
/** POSIX's PIPE_BUF: only up to this are the lines of several workers whole in a full pipe. */
const atomicWriteMax = 4096
/** How long an ending process waits for such a reader. */
const lastWritesMs = 1000

export type Log = pino.Logger

/** What most of the process asks of a log; an application that is guarded brings its own. */
export interface Lines
  extends Record<'debug' | 'info' | 'warn' | 'error', (fields: object | string, message?: string) => void> {
  isLevelEnabled?(level: string): boolean
}

export async function createLog(level: string): Promise<Log> {
  // The workers of one service share a log.
  const base = cluster.isWorker ? { pid: process.pid } : null
  const options = { level, base, timestamp: pino.stdTimeFunctions.isoTime }
  if (process.stdout.isTTY) {
    // Its many files take time to load, and only a terminal needs them.
    const { default: pretty } = await import('pino-pretty')
    const translateTime = "UTC:HH:MM:ss.l'Z'"
    return pino(options, pretty({ translateTime, sync: true, ignore: 'pid,hostname', messageFormat }))
  }
  // Written when the event loop is free: a slow reader of our log must not slow down requests.
  const destination = pino.destination({
    fd: ownPipe() ?? 1,
    sync: false,
    maxLength: bufferMax,
    ...(cluster.isWorker && { maxWrite: atomicWriteMax }),
  })
  surviveWriteErrors(destination)
  return pino(options, destination)
}

/** A message may quote what a client sent: its line breaks must not look like further messages. */
const messageFormat = (line: Record<string, unknown>, key: string) => printable(String(line[key]))

/**
 * The pipe on stdout, opened again; null if stdout is no pipe. Whether writes to a full pipe block is
 * one setting for all processes that share the open pipe, and each Node changes it when it ends: the
 * other workers, and the process that starts them, would then wait for the reader for ever.
 */
function ownPipe(): number | null {
  try {
    const { O_WRONLY, O_NONBLOCK } = constants
    return fstatSync(1).isFIFO() ? openSync('/dev/stdout', O_WRONLY | O_NONBLOCK) : null
  } catch {
    // Another user's, or without a reader.
    return null
  }
}

/** A full disk loses log lines but does not stop the service. Each new line retries the buffer. */
function surviveWriteErrors(destination: ReturnType<typeof pino.destination>) {
  let isFailing = false
  destination.on('write', () => {
    isFailing = false
  })
  destination.on('error', ({ message }: Error) => {
    if (!isFailing)
      process.stderr.write(`latchkey: the log could not be written (${message}); the service goes on\n`)
    isFailing = true
  })
  // The original runs at exit and would retry forever, with a failing write or a full pipe.
  const flushSync = destination.flushSync.bind(destination)
  let retryUntilMs = Infinity
  Object.assign(destination, { retryEAGAIN: () => performance.now() < retryUntilMs })
  destination.flushSync = () => {
    if (isFailing) return
    retryUntilMs = performance.now() + lastWritesMs
    try {
      flushSync()
    } catch {
      // What the reader has not read by now is lost.
    }
    retryUntilMs = Infinity
  }
}
