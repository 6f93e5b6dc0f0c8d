/** What can go wrong, each as one plain line for the person who started Latchkey. Postgres's log has the rest. */
import { readFileSync } from 'node:fs'

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

/** What a log says from `offset` on. Empty when it cannot be read. A start cuts the log, so it is never long. */
export function logSince(path: string, offset: number): string {
  try {
    return readFileSync(path).toString('utf8', offset)
  } catch {
    return ''
  }
}

/** The last line that says why; the last line of all when none does. */
export function lastRelevantLine(output: string): string {
  // Before it has a log, Postgres explains itself over several lines.
  const early = /^(?:\S*\/)?postgres: (.+)/ms.exec(output)?.[1]
  if (early !== undefined) return early.trim().replaceAll('\n', ' ')
  const lines = output.trimEnd().split('\n')
  const why =
    lines.findLast((line) => /\b(FATAL|PANIC|initdb: error|pg_ctl): /.test(line)) ?? lines.at(-1) ?? ''
  // Without time, process id and severity.
  return why.replace(/^.*?\b(?:FATAL|PANIC|LOG|ERROR|initdb: error|pg_ctl): +/, '').trim()
}
