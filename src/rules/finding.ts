/** What `latchkey doctor` finds out about one thing. Contains no credential. */
export interface Finding {
  about: string
  /** note: it works, but someone should know. */
  state: 'ok' | 'note' | 'wrong'
  found: string
  /** What to do about it. */
  advice?: string
}

/** A larger difference between two clocks is noticed by people who compare logs and responses. */
const clockToleranceS = 2

/** Compares a server's clock, read between two moments of ours; all in Unix milliseconds. */
export function clockFinding(about: string, serverMs: number, beforeMs: number, afterMs: number): Finding {
  const aheadS = (serverMs - (beforeMs + afterMs) / 2) / 1000
  const found = `${Math.abs(aheadS).toFixed(1)} s ${aheadS < 0 ? 'behind' : 'ahead of'} this machine`
  // Reading the clock took time, so the difference is uncertain by half of it.
  const isClose = Math.abs(aheadS) <= clockToleranceS + (afterMs - beforeMs) / 2000
  if (isClose) return { about, state: 'ok', found }
  const advice =
    'Synchronise the clocks (NTP). Minutes follow the clock of Redis, expiry and the audit log that of Postgres.'
  return { about, state: 'wrong', found, advice }
}

/**
 * Node's socket errors contain the address, and with a mistyped URL that may be a password. A code
 * in quotes does not count: the server sent it as a name.
 */
export const withoutAddress = (message: string): string => {
  const code = /(?<!\S)(E[A-Z_]{4,})\b/.exec(message)?.[1]
  return code === undefined ? message : `cannot be reached (${code})`
}
