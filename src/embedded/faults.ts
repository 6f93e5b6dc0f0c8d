/** Faults as one plain line for the person who started Latchkey. Postgres's log has the rest. */
import { readFileSync } from 'node:fs'

export const codeOf = (error: unknown): string => String((error as { code?: unknown } | null)?.code ?? '')

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** A file operation in DATA_DIR failed. */
export function fileFault(cause: unknown, dir: string): Error {
  switch (codeOf(cause)) {
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return new Error(
        `DATA_DIR ${dir} is not writable for this user (${messageOf(cause)}): give it to the user Latchkey runs as, or point DATA_DIR elsewhere`,
        { cause },
      )
    case 'ENOSPC':
    case 'EDQUOT':
      return new Error(`the disk of DATA_DIR ${dir} is full (${messageOf(cause)})`, { cause })
    case 'ENOTDIR':
    case 'EEXIST':
      return new Error(`DATA_DIR ${dir} is not a directory`, { cause })
    default:
      return cause instanceof Error ? cause : new Error(String(cause))
  }
}

/** The part of a log from `offset` on. A start empties a log that has grown long. */
export function logSince(path: string, offset: number): string {
  try {
    return readFileSync(path).toString('utf8', offset)
  } catch {
    return ''
  }
}

/** The last line that gives a reason, or else the last line. A full disk causes the faults after it. */
export function lastRelevantLine(output: string): string {
  // Before it has a log, Postgres explains itself over several lines.
  const early = /^(?:\S*\/)?postgres: (.+)/ms.exec(output)?.[1]
  if (early !== undefined) return early.trim().replaceAll('\n', ' ')
  const lines = output.trimEnd().split('\n')
  const reason =
    lines.find((line) => /No space left on device|wrote only \d+ of/.test(line)) ??
    lines.findLast((line) => /\b(FATAL|PANIC|initdb: error|pg_ctl): /.test(line)) ??
    lines.at(-1) ??
    ''
  // Without time, process id and severity.
  return reason.replace(/^.*?\b(?:FATAL|PANIC|LOG|ERROR|initdb: error|pg_ctl): +/, '').trim()
}
