/** Tells when Postgres goes away by itself, and in what way. */
import { statSync } from 'node:fs'
import type { DataDir } from './data-dir.ts'
import { lastLine, logSince } from './faults.ts'
import type { Started } from './postmaster.ts'

export interface ExitWatch {
  /** Resolves with a description. */
  readonly happened: Promise<string>
  /** Somebody else has noticed: whose child it is not sees the connection go. */
  seen(): void
  /** From now on it is meant to go. */
  disregard(): void
}

/** From the end of the connections to the news of the exit, milliseconds. */
const exitToldMs = 500

/** `started` when it is a child of this process. */
export function watchExit(dir: DataDir, pid: number, started: Started | null): ExitWatch {
  const logOffset = started?.logOffset ?? statSync(dir.log, { throwIfNoEntry: false })?.size ?? 0
  let resolve: (description: string) => void
  const happened = new Promise<string>((tell) => {
    resolve = tell
  })
  let regarded = true

  /** The connection to a child may end before its exit is told, and with it how it ended. */
  function seen(): void {
    const child = started?.child
    if (child && child.exitCode === null && child.signalCode === null) setTimeout(tellHow, exitToldMs)
    else tellHow()
  }

  function tellHow(): void {
    if (!regarded) return
    const { signalCode = null, exitCode = null } = started?.child ?? {}
    const status = exitCode === null ? 'is gone' : `ended with status ${exitCode}`
    const last = lastLine(logSince(dir.log, logOffset))
    resolve(
      `Postgres (process ${pid}) ${signalCode ? `was ended by ${signalCode}` : status}; ${last ? `its last words: ${last}` : `its log is ${dir.log}`}`,
    )
  }

  started?.child?.once('exit', tellHow)
  return {
    happened,
    seen,
    disregard: () => {
      regarded = false
    },
  }
}
