/**
 * What can go wrong here, each as one plain line for whoever started Latchkey. Postgres's own noise stays in its log; the
 * line that matters is quoted.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs'

const tailBytesMax = 64 * 1024

export const codeOf = (error: unknown): string => String((error as { code?: unknown } | null)?.code ?? '')

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

export const diskFull = (dir: string, cause?: unknown) =>
  new Error(`The disk that holds ${dir} is full: make room, or point DATA_DIR elsewhere`, { cause })

/** A write that was cut short brings no errno, but the same hint. */
export const saysDiskFull = (output: string) => /No space left on device|Check free disk space/.test(output)

/** A file operation in DATA_DIR failed. */
export function fileFault(error: unknown, dir: string): Error {
  switch (codeOf(error)) {
    case 'ENOSPC':
    case 'EDQUOT':
      return diskFull(dir, error)
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return new Error(
        `DATA_DIR ${dir} is not writable for this user (${messageOf(error)}): give it to the user Latchkey runs as, or point DATA_DIR elsewhere`,
        { cause: error },
      )
    case 'ENOTDIR':
    case 'EEXIST':
      return new Error(`DATA_DIR ${dir} is not a directory`, { cause: error })
    default:
      return error instanceof Error ? error : new Error(String(error))
  }
}

/** What a log says from `offset` on, its last part when that is long. Empty when it cannot be read. */
export function logSince(path: string, offset: number): string {
  let fd: number | undefined
  try {
    fd = openSync(path, 'r')
    const { size } = fstatSync(fd)
    const from = Math.max(Math.min(offset, size), size - tailBytesMax)
    const buffer = Buffer.alloc(size - from)
    return buffer.toString('utf8', 0, readSync(fd, buffer, 0, buffer.length, from))
  } catch {
    return ''
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

/** The last line that says why; the last line of all when none does. */
export function lastRelevantLine(output: string): string {
  // Before it has a log Postgres explains itself over several lines.
  const early = /^(?:\S*\/)?postgres: (.+)/ms.exec(output)?.[1]
  if (early !== undefined) return early.trim().replaceAll('\n', ' ')
  const why = output.split('\n').findLast((line) => /\b(FATAL|PANIC|initdb: error|pg_ctl): /.test(line))
  return why === undefined ? lastLine(output) : withoutPrefix(why)
}

export const lastLine = (output: string): string => withoutPrefix(output.trimEnd().split('\n').at(-1) ?? '')

/** Without time, process id and severity. */
const withoutPrefix = (line: string) =>
  line.replace(/^.*?\b(?:FATAL|PANIC|LOG|ERROR|initdb: error|pg_ctl): +/, '').trim()
