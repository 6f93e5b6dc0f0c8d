/** What came of asking the server, or did not come. */
import type { DataDir } from './data-dir.ts'
import { codeOf, diskFull, messageOf } from './faults.ts'

const onItsWay = new Set(
  'ECONNREFUSED ECONNRESET EPIPE CONNECTION_CLOSED CONNECTION_ENDED CONNECTION_DESTROYED CONNECT_TIMEOUT 57P01 57P02 57P03'.split(
    ' ',
  ),
)

/** The server is on its way up or down. */
export const isOnItsWay = (error: unknown): boolean => onItsWay.has(codeOf(error))

/** postgres.js waits for ever for an answer. */
export async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error('no answer'), { code: 'CONNECT_TIMEOUT' })), ms)
  })
  work.catch(() => {})
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

/** What Postgres refuses at the door, worded for who started Latchkey. */
export function refusal(error: unknown, dir: DataDir): Error {
  switch (codeOf(error)) {
    case '28P01':
      return new Error(`The Postgres in ${dir.cluster} does not accept the password in ${dir.password}`, {
        cause: error,
      })
    case '53100':
      return diskFull(dir.path, error)
    case '53300':
      return new Error(`The Postgres in ${dir.cluster} has no connection left: end a Latchkey that uses it`, {
        cause: error,
      })
    default:
      return new Error(`The Postgres in ${dir.cluster} refused: ${messageOf(error)}`, { cause: error })
  }
}
