/**
 * Ids: a prefix for the kind of resource, then 26 lowercase letters and digits that sort by
 * creation time. In base 36: 9 digits of milliseconds, 5 of a counter, 12 drawn at random once per
 * process. The random part (62 bits) makes ids unique across processes; the counter, which restarts
 * every millisecond, within one. An id is a name, not a secret: nothing depends on it being hard to
 * guess.
 */
import { randomBytes } from 'node:crypto'
import { requestIdPattern } from '../../schemas/bounds.ts'

export const idKinds = ['apk', 'usr', 'aud', 'req', 'ins'] as const
export type IdPrefix = `${(typeof idKinds)[number]}_`

const base36 = (n: number | bigint, width: number) => n.toString(36).padStart(width, '0')
const processPart = base36(randomBytes(8).readBigUInt64BE() % 36n ** 12n, 12)

const digits = Array.from({ length: 36 ** 2 }, (_, n) => base36(n, 2))
const counterEnd = 36 ** 5

let lastMs = 0
let stem = ''
let counter = 0

/** A new id. Within a process, later ids sort after earlier ones, even if the clock steps back. */
export function newId(prefix: IdPrefix, nowMs: number = Date.now()): string {
  if (nowMs > lastMs || counter === counterEnd) {
    lastMs = nowMs > lastMs ? nowMs : lastMs + 1
    counter = 0
    stem = base36(lastMs, 9)
  }
  const n = counter++
  return `${prefix}${stem}${base36(Math.floor(n / 1296), 3)}${digits[n % 1296]}${processPart}`
}

const requestId = new RegExp(requestIdPattern)
export const isRequestId = (id: unknown): id is string => typeof id === 'string' && requestId.test(id)

/**
 * Returns the text if it looks like an id of this kind, else '', which is no one's id. Postgres
 * text cannot contain NUL (SQLSTATE 22021), and a key sent in place of an id must not get into a
 * log of statements.
 */
export const idOrNone = (prefix: IdPrefix, text: string): string =>
  text.startsWith(prefix) && /^[0-9A-Za-z]{1,100}$/.test(text.slice(prefix.length)) ? text : ''
