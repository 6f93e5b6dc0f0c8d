/**
 * Ids: a prefix that says what it names, then 26 lowercase letters and digits that sort by time of making:
 * 9 of the millisecond, 12 drawn at random once per process, 5 of a counter (base 36 throughout).
 * Unique across processes by the random part (62 bits), within one by the counter, which starts anew each millisecond.
 * An id is a name, not a secret: nothing rests on its being hard to guess.
 */
import { randomBytes } from 'node:crypto'

export type IdPrefix = 'apk_' | 'usr_' | 'aud_' | 'req_'

const base36 = (n: number | bigint, width: number) => n.toString(36).padStart(width, '0')
const processPart = base36(randomBytes(8).readBigUInt64BE() % 36n ** 12n, 12)

const digits = Array.from({ length: 36 ** 2 }, (_, n) => base36(n, 2))
const counterEnd = 36 ** 5

let lastMs = 0
let stem = ''
let counter = 0

/** A new id. Later ones of this process sort after earlier ones, also when the clock steps back. */
export function newId(prefix: IdPrefix, nowMs: number = Date.now()): string {
  if (nowMs > lastMs || counter === counterEnd) {
    lastMs = nowMs > lastMs ? nowMs : lastMs + 1
    counter = 0
    stem = base36(lastMs, 9)
  }
  const n = counter++
  return `${prefix}${stem}${base36(Math.floor(n / 1296), 3)}${digits[n % 1296]}${processPart}`
}
